//! A container engine in the box of a closed world: Docker's daemon as the distribution packages it, started and ended by
//! the test. Its files, network, processes and mounts are the box's and go with it; its cgroups are the machine's and are
//! taken away by name.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod cell;
pub mod direct;
pub mod images;

use crate::common::Fence;
use cell::Reached;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use world::address::BOX4;
use world::{Said, Sink};

/// Where everything of the engine lies in the box: in memory.
const PLACE: &str = "/run/engine";
/// Where the volumes are that a test gives to its containers.
pub const VOLUMES: &str = "/run/engine/volumes";
/// The engine's own address on its bridge, which is the gateway of its containers.
pub const BRIDGE: std::net::Ipv4Addr = std::net::Ipv4Addr::new(172, 31, 77, 1);
/// A second network of the engine's, as `docker network create` makes them: with a resolver of Docker's in each container.
pub const NETWORK: (&str, &str) = ("named", "172.31.78.0/24");
/// Both networks, as the world outside routes them back.
const NETWORKS: &str = "172.31.76.0/22";
/// Where only sinks listen, outside and on the bridge.
pub const SINK_PORT: u16 = 4444;
/// How long the engine may take for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// The daemon, its world, and what listens there.
pub struct Engine {
    /// A listener on the bridge, which is reachable from each container.
    pub bridge: Sink,
    _daemon: Daemon,
    /// The closed world in whose box the daemon runs; it goes after the daemon.
    pub fence: Fence,
}

/// The engine; where the environment says `RINGFENCE_TEST_CONTAINERS=direct`, for a machine on which no container can be
/// started, none, and then the session has passed under the same capabilities and seccomp profile, applied directly.
pub fn start() -> Option<Engine> {
    const SWITCH: &str = "RINGFENCE_TEST_CONTAINERS";
    if std::env::var_os(SWITCH).is_some_and(|value| value == "direct") {
        eprintln!("no container is started: capabilities and seccomp profile are applied directly ({SWITCH}=direct)");
        ["full", "container", "bare"].into_iter().for_each(direct::protects);
        return None;
    }
    Some(Engine::start().unwrap_or_else(|cause| {
        panic!("no container engine: {cause}; {SWITCH}=direct applies a container's capabilities and profile directly")
    }))
}

impl Engine {
    /// Starts the daemon, or tells why it cannot run on this machine.
    pub fn start() -> Result<Engine, String> {
        let fence = Fence::new();
        clear_stale_groups();
        route(&fence);
        let ready = fence.world.inside().run(|| {
            std::fs::create_dir_all(PLACE).expect("a directory for the engine");
            UnixDatagram::bind(format!("{PLACE}/ready")).expect("a socket to be told on")
        });
        let mut daemon = Daemon::start(&fence)?;
        await_ready(&ready, &mut daemon.child).map_err(|cause| {
            let log = fence.world.read(&format!("{PLACE}/log")).unwrap_or_default();
            format!("{cause}: {}", String::from_utf8_lossy(&log).lines().last().unwrap_or("it said nothing"))
        })?;
        let bridge = Sink::tcp(fence.world.inside(), BRIDGE, SINK_PORT).map_err(|cause| cause.to_string())?;
        Ok(Engine { bridge, _daemon: daemon, fence })
    }

    /// Runs `docker ARGUMENTS` to its end.
    pub fn docker(&self, arguments: &[&str]) -> Said {
        Said::from(self.fence.world.output(self.command(arguments)))
    }

    /// The same, and it must succeed; its output without the last line's end.
    pub fn done(&self, arguments: &[&str]) -> String {
        let said = self.docker(arguments);
        assert_eq!(said.code, Some(0), "docker {arguments:?}: {said}");
        said.out.trim_end().to_owned()
    }

    /// `docker ARGUMENTS`, for a test that starts it itself.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.fence.world.command("docker");
        command.env("DOCKER_HOST", format!("unix://{PLACE}/docker.sock")).args(arguments);
        // The classic builder: an image from scratch needs no other one, and the distribution's package has no other.
        command.env("DOCKER_BUILDKIT", "0");
        command
    }

    /// What has reached whom by now.
    pub fn reached(&self) -> Reached {
        Reached::of(&self.fence, Some(&self.bridge))
    }

    /// Makes the network with Docker's own resolver; a container joins it by `--network`.
    pub fn make_network(&self) {
        self.done(&["network", "create", "--subnet", NETWORK.1, NETWORK.0]);
    }

    /// A new directory of the box, to be given to a container as a volume. Anyone may write there.
    pub fn volume(&self, name: &str) -> String {
        let path = format!("{VOLUMES}/{name}");
        self.fence.world.write(&format!("{path}/.made"), "", 0o644);
        let said = self.fence.world.shell(&format!("rm {path}/.made && chmod 1777 {path}"));
        assert_eq!(said.code, Some(0), "{said}");
        path
    }

    /// The names of the programs that a container's processes run, as the engine shows them. Those that have ended and wait
    /// to be reaped are not among them.
    pub fn programs(&self, container: &str) -> Vec<String> {
        let listed = self.done(&["top", container, "-eo", "pid,comm"]);
        listed.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let all = self.docker(&["ps", "--all", "--quiet"]).out;
        let all: Vec<&str> = all.split_whitespace().collect();
        if !all.is_empty() {
            let said = self.docker(&[&["rm", "--force", "--volumes"], all.as_slice()].concat());
            if said.code != Some(0) {
                eprintln!("containers stay until the daemon's end: {said}");
            }
        }
    }
}

/// The daemon's process, and the cgroup that its containers are in.
struct Daemon {
    child: Child,
    group: String,
}

impl Daemon {
    fn start(fence: &Fence) -> Result<Daemon, String> {
        let group = format!("{GROUPS}{}", std::process::id());
        let child = fence.world.spawn(daemon_command(fence, &group)).map_err(|cause| format!("dockerd: {cause}"))?;
        Ok(Daemon { child, group })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        end(&mut self.child);
        remove_groups(&self.group);
    }
}

/// The daemon is PID 1 of a namespace of its own that ends with the test's process, whatever becomes of that; so no
/// container outlives it.
fn daemon_command(fence: &Fence, group: &str) -> Command {
    let log = fence.world.inside().run(|| std::fs::File::create(format!("{PLACE}/log")).expect("a log"));
    let mut command = fence.world.command("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "dockerd"]);
    command.env("NOTIFY_SOCKET", format!("{PLACE}/ready"));
    for (flag, file) in [("data-root", "data"), ("exec-root", "exec"), ("pidfile", "pid")] {
        command.arg(format!("--{flag}={PLACE}/{file}"));
    }
    command.arg(format!("--host=unix://{PLACE}/docker.sock")).arg(format!("--cgroup-parent=/{group}"));
    command.arg(format!("--bip={BRIDGE}/24")).args(["--iptables=false", "--ip6tables=false", "--userland-proxy=false"]);
    command.args(["--storage-driver=overlay2", "--exec-opt=native.cgroupdriver=cgroupfs"]);
    command.stdout(log.try_clone().expect("dup")).stderr(log);
    command.stdin(Stdio::null());
    command
}

/// The daemon tells by sd_notify(3) that it serves.
fn await_ready(ready: &UnixDatagram, daemon: &mut Child) -> Result<(), String> {
    ready.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let since = Instant::now();
    let mut told = [0; 4096];
    loop {
        if let Ok(length) = ready.recv(&mut told)
            && told[..length].split(|byte| *byte == b'\n').any(|line| line == b"READY=1")
        {
            return Ok(());
        }
        if let Some(status) = daemon.try_wait().expect("wait for the daemon") {
            return Err(format!("dockerd ended with {status}"));
        }
        if since.elapsed() > PATIENCE {
            return Err(format!("dockerd does not serve after {} s", PATIENCE.as_secs()));
        }
    }
}

/// Asks the daemon to end, which it does when its own processes have; and makes it.
fn end(daemon: &mut Child) {
    let parent = daemon.id();
    let own = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    for pid in own.split_whitespace().filter_map(|pid| pid.parse().ok()) {
        if let Err(cause) = kill(Pid::from_raw(pid), Signal::SIGTERM) {
            eprintln!("SIGTERM to dockerd: {cause}");
        }
    }
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        if daemon.try_wait().expect("wait for the daemon").is_some() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    eprintln!("dockerd does not end when it is asked to");
    daemon.kill().expect("SIGKILL to the daemon's parent");
    daemon.wait().expect("wait for the daemon");
}

/// The box forwards what its containers send, and the outside sends answers back by the box.
fn route(fence: &Fence) {
    fence.world.inside().run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("write ip_forward"));
    let said = fence.world.outside().run(|| {
        let output = Command::new("ip").args(["route", "add", NETWORKS, "via", &BOX4.to_string()]).output();
        Said::from(output.expect("ip is installed (.ci/deps)"))
    });
    assert_eq!(said.code, Some(0), "{said}");
}

/// What the names of this suite's cgroups begin with; the number of the test's process follows.
const GROUPS: &str = "ringfence-test-";

/// The places where a group of ours may be: each hierarchy of version 1, and the root of version 2.
fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let mut found = vec![root.to_owned()];
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    found.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
    found
}

/// A group can be removed once it has no process, and those within it first.
fn remove_groups(name: &str) {
    fn remove(group: &Path) {
        let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .for_each(|entry| remove(&entry.path()));
        if let Err(cause) = std::fs::remove_dir(group) {
            eprintln!("{}: {cause}", group.display());
        }
    }
    hierarchies().iter().map(|place| place.join(name)).filter(|group| group.is_dir()).for_each(|group| remove(&group));
}

/// Those of tests that were killed.
fn clear_stale_groups() {
    for place in hierarchies() {
        for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let owner = name.strip_prefix(GROUPS).and_then(|pid| pid.parse::<u32>().ok());
            if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                remove_groups(&name);
            }
        }
    }
}
