//! In an image that holds next to nothing, each lack has exactly one of two outcomes: the whole protection, as the probes and
//! the command itself see it, or a refusal that names the cause (case E06).

mod attempts;
mod common;

use attempts::ATTEMPTS;
use common::{Ended, Fence, RINGFENCE};
use std::path::Path;
use std::process::Command;
use world::{Image, Internet, Said, World};

/// The box without anything but the two static programs; what prepares it runs from outside of the image.
struct Bare {
    fence: Fence,
}

impl Bare {
    fn new() -> Bare {
        let world = World::with(Image::Empty).expect("a bare box");
        let internet = Internet::start(&world).expect("servers outside");
        let fence = Fence::of(world, internet);
        attempts::install(&fence.world);
        let bare = Bare { fence };
        // The suite keeps its worlds' users apart by this file.
        bare.prepare(|| std::fs::remove_dir_all("/etc"));
        bare
    }

    /// Does something with the privilege of root in the box's namespaces; no program of an image is at hand.
    fn prepare(&self, job: impl FnOnce() -> std::io::Result<()> + Send + 'static) {
        self.fence.world.inside().run(job).expect("the image is prepared");
    }

    fn run(&self, flags: &[&str], command: &[&str]) -> Ended {
        let mut whole: Command = self.fence.world.command(RINGFENCE);
        let ledger = "/run/ledger.jsonl";
        // Not /dev/null, which an image may lack.
        whole
            .env_clear()
            .stdin(std::process::Stdio::piped())
            .arg("run")
            .args(["--ledger", ledger])
            .args(flags)
            .arg("--")
            .args(command);
        let said = Said::from(self.fence.world.output(whole));
        let ended = self.fence.ended(said, ledger.into());
        self.prepare(|| match std::fs::remove_file("/run/ledger.jsonl") {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        });
        ended
    }

    /// The whole protection: every probe has passed, the command is nobody, and the trees are read-only.
    fn protects(&self, what: &str) {
        self.protects_with(what, &[]);
    }

    fn protects_with(&self, what: &str, flags: &[&str]) {
        let ended = self.run(&[&["--policy", "nist-high"], flags].concat(), &[ATTEMPTS, "credentials"]);
        assert_eq!(ended.said.code, Some(0), "{what}: {ended}");
        let (uid, gid) = (ended.start().uid, ended.start().gid);
        let nobody = format!(
            "self uid={uid},{uid},{uid} gid={gid},{gid},{gid} groups=0 inh=00 prm=00 eff=00 amb=0 bnd=0 nnp=1 seccomp=2 known=1"
        );
        assert_eq!(ended.said.out.lines().next(), Some(nobody.as_str()), "{what}: {ended}");
        let probes: Vec<bool> = ended
            .records
            .iter()
            .filter_map(|record| match &record.body {
                ringfence::ledger::record::Body::Probe(probe) => Some(probe.passed),
                _ => None,
            })
            .collect();
        assert!(probes.len() > 30 && probes.iter().all(|passed| *passed), "{what}: {ended}");
        assert!(ended.seal().complete, "{what}: {ended}");
        let ended =
            self.run(&[&["--policy", "nist-high"], flags].concat(), &[ATTEMPTS, "open", "/usr", "/usr/local", "/"]);
        let lines: Vec<&str> = ended.said.out.lines().collect();
        assert_eq!(
            lines[..4],
            ["read /usr ok", "create /usr/new EROFS", "read /usr/local ok", "create /usr/local/new EROFS"],
            "{what}: {ended}"
        );
    }

    /// A refusal in one line that names the cause; nothing was started.
    fn refuses(&self, what: &str, named: &str) {
        self.refuses_with(what, &[], named);
    }

    fn refuses_with(&self, what: &str, flags: &[&str], named: &str) {
        let ended = self.run(&[&["--policy", "nist-high"], flags].concat(), &[ATTEMPTS, "credentials"]);
        assert_eq!((ended.said.code, ended.said.out.as_str()), (Some(125), ""), "{what}: {ended}");
        assert_eq!(ended.said.err.lines().count(), 1, "{what}: {ended}");
        assert!(ended.said.err.contains(named), "{what}: {ended}");
    }
}

fn mount(
    source: &str,
    target: &str,
    kind: Option<&str>,
    flags: nix::mount::MsFlags,
    data: Option<&str>,
) -> std::io::Result<()> {
    Ok(nix::mount::mount(Some(source), target, kind, flags, data)?)
}

fn unmount(target: &str) -> std::io::Result<()> {
    Ok(nix::mount::umount2(target, nix::mount::MntFlags::MNT_DETACH)?)
}

const NONE: nix::mount::MsFlags = nix::mount::MsFlags::empty();
const READ_ONLY: nix::mount::MsFlags =
    nix::mount::MsFlags::MS_RDONLY.union(nix::mount::MsFlags::MS_REMOUNT).union(nix::mount::MsFlags::MS_BIND);

#[test]
fn nothing_but_two_static_programs() {
    let bare = Bare::new();
    bare.protects("no passwd, no HOME in the environment, no resolv.conf, no shell, no loader");
    assert_eq!(bare.fence.world.read("/etc/passwd"), None);
}

#[test]
fn home_is_read_only_where_the_image_has_none() {
    let bare = Bare::new();
    let ended = bare.run(
        &["--policy", "nist-high", "--user", &common::own_user().to_string()],
        &[ATTEMPTS, "open", "/home", &home(), &format!("{}/.cache", home())],
    );
    let home = home();
    let expected = format!(
        "read /home ok\ncreate /home/new EROFS\nread {home} ok\ncreate {home}/new EROFS\nread {home}/.cache ok\ncreate {home}/.cache/new ok\n"
    );
    assert_eq!(ended.said.out, expected, "{ended}");
}

fn home() -> String {
    format!("/home/agent-{}", common::own_user())
}

#[test]
fn account_files_of_any_form() {
    let bare = Bare::new();
    for (what, passwd) in [
        ("empty", Vec::new()),
        ("entry missing", b"root:x:0:0:root:/root:/bin/sh\n".to_vec()),
        ("malformed", b"\n:::\nbroken\n\xff\xfe:x:q:q::/:/\n".to_vec()),
        ("a line of 10 MiB", [b"long:x:4321:4321:".as_slice(), &vec![b'a'; 10 << 20], b":/:/bin/sh\n"].concat()),
    ] {
        bare.fence.world.write("/etc/passwd", passwd, 0o644);
        bare.protects(what);
    }
    for user in [common::own_user().to_string(), format!("{}:77", common::own_user()), "4294967294".into()] {
        bare.protects_with(&user, &["--user", &user]);
    }
    for (user, named) in [("-1", "accepted"), ("somebody", "no such entry"), ("4294967295", "accepted")] {
        bare.refuses_with(user, &[&format!("--user={user}")], named);
    }
    bare.prepare(|| std::fs::remove_file("/etc/passwd").and_then(|()| std::fs::create_dir("/etc/passwd")));
    bare.refuses("a directory", "/etc/passwd");
}

#[test]
fn scratch_directories_of_any_kind() {
    let bare = Bare::new();
    bare.prepare(|| {
        mount(
            "none",
            "/tmp",
            None,
            nix::mount::MsFlags::MS_REMOUNT.union(nix::mount::MsFlags::MS_BIND).union(nix::mount::MsFlags::MS_NOEXEC),
            None,
        )
    });
    bare.protects("/tmp noexec");
    bare.prepare(|| std::fs::set_permissions("/tmp", std::os::unix::fs::PermissionsExt::from_mode(0o755)));
    bare.protects("/tmp root's alone: it is the command's for the run");
    bare.prepare(|| mount("none", "/tmp", None, READ_ONLY, None));
    bare.refuses("/tmp read-only", "/tmp");
    bare.prepare(|| {
        unmount("/tmp").and_then(|()| mount("full", "/tmp", Some("tmpfs"), NONE, Some("mode=1777,size=4k,nr_inodes=3")))
    });
    bare.prepare(|| std::fs::write("/tmp/fill", vec![0u8; 4096]));
    bare.refuses("/tmp full", "/tmp");
    bare.prepare(|| unmount("/tmp").and_then(|()| std::fs::remove_dir("/tmp")));
    bare.protects("/tmp absent");
    bare.prepare(|| unmount("/dev/shm"));
    bare.protects("/dev/shm not mounted");
}

#[test]
fn a_read_only_root() {
    let bare = Bare::new();
    bare.prepare(|| mount("none", "/", None, READ_ONLY, None));
    bare.refuses("HOME cannot be made", "EROFS");
    bare.prepare(|| {
        mount("none", "/", None, nix::mount::MsFlags::MS_REMOUNT.union(nix::mount::MsFlags::MS_BIND), None)?;
        let home = home();
        std::fs::create_dir_all(&home)?;
        for place in [".cache", ".config", ".local", ".local/bin", ".local/share", ".local/state"] {
            std::fs::create_dir(Path::new(&home).join(place))?;
        }
        for place in ["", ".cache", ".config", ".local", ".local/bin", ".local/share", ".local/state"] {
            std::os::unix::fs::chown(Path::new(&home).join(place), Some(common::own_user()), Some(common::own_user()))?;
        }
        for place in [".cache", ".config", ".local"] {
            mount(
                "state",
                Path::new(&home).join(place).to_str().expect("text"),
                Some("tmpfs"),
                NONE,
                Some("mode=0777"),
            )?;
        }
        mount("none", "/", None, READ_ONLY, None)
    });
    bare.protects_with("HOME is there, its state in memory", &["--user", &common::own_user().to_string()]);
}

#[test]
fn proc_of_any_kind() {
    let bare = Bare::new();
    bare.prepare(|| unmount("/proc").and_then(|()| mount("proc", "/proc", Some("proc"), NONE, Some("hidepid=2"))));
    bare.protects("hidepid=2");
    bare.prepare(|| unmount("/proc").and_then(|()| mount("proc", "/proc", Some("proc"), NONE, None)));
    bare.prepare(|| mount("none", "/proc", None, READ_ONLY, None));
    bare.protects("read-only");
    bare.prepare(|| mount("mask", "/proc/sys", Some("tmpfs"), nix::mount::MsFlags::MS_RDONLY, None));
    bare.protects("masked in part");
    bare.prepare(|| unmount("/proc/sys").and_then(|()| unmount("/proc")));
    bare.refuses("absent", "/proc");
    bare.prepare(|| mount("not-proc", "/proc", Some("tmpfs"), NONE, None));
    bare.refuses("something else", "/proc");
}

#[test]
fn sys_and_dev_of_any_kind() {
    let bare = Bare::new();
    bare.prepare(|| unmount("/sys"));
    bare.protects("/sys not mounted");
    bare.prepare(|| std::fs::remove_dir("/sys"));
    bare.protects("/sys absent");
    bare.prepare(|| {
        unmount("/dev").and_then(|()| mount("dev", "/dev", Some("tmpfs"), NONE, Some("mode=0755")))?;
        let device = nix::sys::stat::makedev(1, 3);
        Ok(nix::sys::stat::mknod(
            "/dev/null",
            nix::sys::stat::SFlag::S_IFCHR,
            nix::sys::stat::Mode::from_bits_truncate(0o666),
            device,
        )?)
    });
    bare.protects("/dev with null alone");
    bare.prepare(|| unmount("/dev"));
    bare.protects("/dev empty");
    bare.prepare(|| std::fs::remove_dir("/dev"));
    bare.protects("/dev absent");
}

#[test]
fn a_root_that_is_no_mount_point() {
    let bare = Bare::new();
    // chroot(2) alone, as a build chroot has it.
    bare.prepare(|| {
        std::fs::create_dir_all("/jail/usr/local/bin")?;
        for directory in ["/jail/proc", "/jail/run", "/jail/tmp"] {
            std::fs::create_dir(directory)?;
        }
        for program in [RINGFENCE, ATTEMPTS] {
            std::fs::copy(program, format!("/jail{program}"))?;
        }
        mount("proc", "/jail/proc", Some("proc"), NONE, None)
    });
    let run = |rung: &'static [&'static str]| {
        Said::from(bare.fence.world.inside().run(move || {
            // The directory is the child's root from before its exec.
            let mut helper = Command::new(ATTEMPTS);
            helper.args(["chroot", "/jail", RINGFENCE, "run", "--policy", "nist-high"]).args(rung);
            helper.args(["--", ATTEMPTS, "credentials"]);
            helper.output().expect("the chroot starts")
        }))
    };
    let said = run(&["--rung", "full"]);
    assert_eq!((said.code, said.out.as_str(), said.err.lines().count()), (Some(125), "", 1), "{said}");
    assert!(said.err.contains("the root directory is no mount point"), "{said}");
    // It is no hindrance to a rung without mounts.
    let said = run(&[]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said}");
}
