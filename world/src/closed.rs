//! The world as a value: the box, the outside, and what happened between them.

use crate::address::{BOX4, BOX6, GATEWAY4, GATEWAY6};
use crate::capture::{Capture, Packet};
use crate::error::Error;
use crate::image::{self, Image, Names};
use crate::less::Less;
use crate::namespace::Namespace;
use crate::network;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fmt;
use std::fs::File;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// How long a packet on a link in one machine may take before the world is said to be broken.
const PATIENCE: Duration = Duration::from_secs(10);

/// A closed world: a box where ringfence and its command run, and an outside that owns every address they can reach.
/// Both go with the value, and with the process when it is killed.
pub struct World {
    capture: Capture,
    inside: Namespace,
    outside: Namespace,
    layers: File,
}

impl World {
    /// A world whose box has the machine's own programs.
    ///
    /// # Errors
    /// See [`World::with`].
    pub fn new() -> Result<World, Error> {
        World::with(Image::Machine)
    }

    /// A world whose box has the given root.
    ///
    /// # Errors
    /// Not root, a missing `ip`, a system call that failed, or an interface that does not belong to the world.
    pub fn with(image: Image) -> Result<World, Error> {
        if !nix::unistd::geteuid().is_root() {
            return Err(Error::NotRoot);
        }
        let (outside, inside) = (Namespace::new("outside")?, Namespace::new("box")?);
        network::connect(&inside, &outside)?;
        network::assert_closed(&inside, &outside)?;
        let capture = Capture::start(&outside)?;
        let repository = repository();
        let layers = inside.run(move || image::enter(image, &repository, Names::World))?;
        let world = World { capture, inside, outside, layers };
        world.settle();
        Ok(world)
    }

    /// The namespace of the box; a job run in it also sees the box's files.
    pub fn inside(&self) -> &Namespace {
        &self.inside
    }

    /// The namespace of the outside; a job run in it sees the machine's files.
    pub fn outside(&self) -> &Namespace {
        &self.outside
    }

    /// Gives the outside one more address.
    ///
    /// # Errors
    /// `ip` refused it.
    pub fn assign(&self, address: IpAddr) -> Result<(), Error> {
        network::assign(&self.outside, address)
    }

    /// Lets the box's programs trust an authority, as a company's image does.
    pub fn trust(&self, authority_pem: &str) {
        let pem = authority_pem.to_owned();
        self.inside.run(move || {
            use std::io::Write as _;
            let bundle = Path::new("/etc/ssl/certs/ca-certificates.crt");
            std::fs::create_dir_all(bundle.parent().expect("has a parent")).expect("mkdir /etc/ssl/certs");
            let mut file =
                std::fs::OpenOptions::new().create(true).append(true).open(bundle).expect("open the CA bundle");
            file.write_all(pem.as_bytes()).expect("append to the CA bundle");
            // Node and some others carry a bundle of their own and take a file beside it.
            std::fs::create_dir_all("/usr/local/share/ca-certificates").expect("mkdir ca-certificates");
            std::fs::write(AUTHORITY_FILE, pem).expect("write the authority's file");
        });
    }

    /// Puts a file of the machine into the box, mode 0755.
    pub fn install(&self, from: &Path, to: &str) {
        let bytes = std::fs::read(from).unwrap_or_else(|cause| panic!("read {}: {cause}", from.display()));
        self.write(to, bytes, 0o755);
    }

    /// Writes a file in the box, its directories with it.
    pub fn write(&self, path: &str, text: impl Into<Vec<u8>>, mode: u32) {
        let (path, bytes) = (PathBuf::from(path), text.into());
        self.inside.run(move || {
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent).unwrap_or_else(|cause| panic!("mkdir {}: {cause}", parent.display()));
            }
            std::fs::write(&path, bytes).unwrap_or_else(|cause| panic!("write {}: {cause}", path.display()));
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("chmod");
        });
    }

    /// Reads a file of the box; `None` when it isn't there.
    pub fn read(&self, path: &str) -> Option<Vec<u8>> {
        let path = path.to_owned();
        self.inside.run(move || std::fs::read(path)).ok()
    }

    /// Mounts an in-memory file system on a directory of the box: its mounts can be idmapped from Linux 6.3 on.
    ///
    /// # Errors
    /// The mount failed.
    pub fn mount_memory(&self, directory: &str) -> Result<(), Error> {
        let directory = PathBuf::from(directory);
        self.inside.run(move || image::mount_memory(&directory))
    }

    /// Mounts a fresh ext4 file system (64 MiB) on a directory of the box: its mounts can be idmapped.
    ///
    /// # Errors
    /// `mkfs.ext4` or a loop device is missing, or the mount failed.
    pub fn mount_ext4(&self, directory: &str) -> Result<(), Error> {
        let (layers, directory) = (self.layers(), PathBuf::from(directory));
        self.inside.run(move || image::mount_ext4(&layers, &directory))
    }

    /// A command with a plain environment, to be given to [`World::spawn`] or [`World::output`].
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(ENVIRONMENT);
        command.stdin(Stdio::null());
        command
    }

    /// Starts a command in the box.
    ///
    /// # Errors
    /// `fork` or `exec` failed.
    pub fn spawn(&self, mut command: Command) -> std::io::Result<Child> {
        self.inside.run(move || command.spawn())
    }

    /// Starts a command in the box with less than root has there.
    ///
    /// # Errors
    /// What could not be taken away, or the command's start.
    pub fn spawn_with(&self, less: &Less, command: Command) -> Result<Child, Error> {
        let less = less.clone();
        self.inside.run(move || less.spawn(command))
    }

    /// Runs a command in the box to its end, with less than root has there; see [`World::output`].
    pub fn output_with(&self, less: &Less, mut command: Command) -> Output {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let name = format!("{command:?}");
        let child = self.spawn_with(less, command).unwrap_or_else(|cause| panic!("start {name}: {cause}"));
        child.wait_with_output().unwrap_or_else(|cause| panic!("wait for {name}: {cause}"))
    }

    /// Runs a command in the box to its end. Its output ends with it and with all who inherit its pipes.
    pub fn output(&self, mut command: Command) -> Output {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let name = format!("{command:?}");
        let child = self.spawn(command).unwrap_or_else(|cause| panic!("start {name}: {cause}"));
        child.wait_with_output().unwrap_or_else(|cause| panic!("wait for {name}: {cause}"))
    }

    /// Runs `sh -c script` in the box.
    pub fn shell(&self, script: &str) -> Said {
        let mut command = self.command("sh");
        command.args(["-c", script]);
        Said::from(self.output(command))
    }

    /// Every packet that has left the box so far, but for what IPv6 says on any link.
    pub fn packets(&self) -> Vec<Packet> {
        self.settle();
        self.capture.packets().into_iter().filter(|packet| !packet.is_link_chatter()).collect()
    }

    /// How many packets have left the box, once no more has for half a second: the last of a connection leave after its ends
    /// have closed it.
    pub fn settled_packets(&self) -> usize {
        let mut count = self.packets().len();
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let now = self.packets().len();
            if now == count {
                return count;
            }
            count = now;
        }
    }

    /// The packets from the box to one address.
    pub fn packets_to(&self, address: impl Into<IpAddr>) -> Vec<Packet> {
        let address = address.into();
        self.packets().into_iter().filter(|packet| packet.destination == address).collect()
    }

    /// The processes that live in the box.
    pub fn processes(&self) -> Vec<u32> {
        processes_in(&[self.inside.inode()])
    }

    /// What the box's upper layer holds: every path that was made, changed or removed since the world was built.
    pub fn changes(&self) -> Vec<PathBuf> {
        fn walk(top: &Path, at: &Path, found: &mut Vec<PathBuf>) {
            let Ok(entries) = std::fs::read_dir(at) else {
                return;
            };
            for entry in entries.flatten() {
                let path = entry.path();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    walk(top, &path, found);
                }
                found.push(Path::new("/").join(path.strip_prefix(top).expect("below the top")));
            }
        }
        let upper = self.layers().join("upper");
        let mut found = Vec::new();
        walk(&upper, &upper, &mut found);
        found.sort();
        found
    }

    /// The directory of the image's layers, as a path that the programs of both namespaces can open.
    fn layers(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.layers.as_raw_fd()))
    }

    /// Waits until everything the box has sent is captured, by sending marks of its own over both families.
    fn settle(&self) {
        for (from, to) in [(IpAddr::V4(BOX4), IpAddr::V4(GATEWAY4)), (IpAddr::V6(BOX6), IpAddr::V6(GATEWAY6))] {
            let (number, datagram) = self.capture.mark();
            let deadline = std::time::Instant::now() + PATIENCE;
            loop {
                let datagram = datagram.clone();
                let sent = self.inside.run(move || -> std::io::Result<usize> {
                    UdpSocket::bind(SocketAddr::new(from, 0))?.send_to(&datagram, SocketAddr::new(to, 9))
                });
                if self.capture.wait_for(number, Duration::from_millis(100)) {
                    break;
                }
                assert!(std::time::Instant::now() < deadline, "no packet from {from} reaches {to}: {sent:?}");
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let spaces = [self.inside.inode(), self.outside.inode()];
        for pid in processes_in(&spaces) {
            // A process that has just ended by itself is what is wanted.
            if let Err(cause) = kill(Pid::from_raw(pid as i32), Signal::SIGKILL)
                && cause != nix::errno::Errno::ESRCH
            {
                eprintln!("process {pid} of the world can't be ended: {cause}");
            }
        }
    }
}

/// The file that holds a trusted authority in the box (see [`World::trust`]).
pub const AUTHORITY_FILE: &str = "/usr/local/share/ca-certificates/world.crt";

/// The environment of a command in the box.
const ENVIRONMENT: [(&str, &str); 4] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/root"),
    ("LANG", "C.UTF-8"),
    ("TERM", "dumb"),
];

/// The processes whose network namespace is one of those; this process's own threads are none.
fn processes_in(namespaces: &[u64]) -> Vec<u32> {
    let own = std::process::id();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter(|pid| *pid != own)
        .filter(|pid| {
            std::fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|space| namespaces.contains(&space.ino()))
        })
        .collect()
}

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the repository").to_owned()
}

/// What a command said and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// The exit status; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        Said {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "status {:?}\n--- stdout\n{}\n--- stderr\n{}", self.code, self.out, self.err)
    }
}
