//! The candidates, each in a world of its own: what one puts in force there meets no other's packets. All traffic is on the
//! box's `lo`.

use super::origin::{self, ADDRESS, BULK, NAME, PATIENCE, SMALL};
use super::relay;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddrV4, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use world::World;

/// Descriptors that each process may have: as many as the hard limit allows.
pub fn descriptors() -> u64 {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("getrlimit");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("setrlimit");
    hard
}

/// A way to the server.
pub struct Side {
    /// What it is called in the tables.
    pub name: String,
    /// Where it is asked; `None` where there is none, and the server is asked itself.
    pub proxy: Option<SocketAddrV4>,
    /// The world in which it stands.
    pub world: World,
    /// The first of its processes, and what the others are called; those of no other name are not its own.
    child: Option<(Child, &'static str)>,
}

impl Side {
    /// The server alone.
    pub fn direct() -> Side {
        Side::of("direct", |_| None)
    }

    /// The relay, which is this program.
    pub fn relay() -> Side {
        Side::of("relay", |world| {
            world.install(&std::env::current_exe().expect("/proc/self/exe"), "/usr/local/bin/relay");
            let mut command = world.command("/usr/local/bin/relay");
            command.arg("relay");
            Some((world.spawn(command).expect("the relay"), "relay", relay::AT))
        })
    }

    /// A session of ringfence's, as it is shipped: the observer, the wall, the record. Its command waits. Who asks its proxy is
    /// not the command, so that what is measured is the proxy.
    pub fn ringfence(name: &str, binary: &Path) -> Side {
        Side::of(name, |world| {
            world.install(binary, "/usr/local/bin/ringfence");
            let mut command = world.command("/usr/local/bin/ringfence");
            command.args(["run", "--policy", "nist-high", "--leftovers", "kill"]);
            command.args(["--trust-range", &format!("{ADDRESS}/32")]);
            for port in [SMALL, BULK] {
                command.args(["--allow-host", &format!("{NAME}:{port}")]);
            }
            command.args(["--", "sh", "-c", "echo $http_proxy; exec cat"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = world.spawn(command).expect("ringfence");
            let mut line = String::new();
            BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("its command's output");
            let address = line.trim().trim_start_matches("http://").trim_end_matches('/');
            let address = address.parse().unwrap_or_else(|cause| panic!("{cause}: {line:?} for http_proxy"));
            Some((child, "ringfence", address))
        })
    }

    /// squid without a cache and without a log, which admits the server and nothing else.
    pub fn squid() -> Side {
        Side::of("squid", |world| {
            let at: SocketAddrV4 = "127.0.0.1:3128".parse().expect("an address");
            world.write(
                "/etc/squid/bench.conf",
                format!(
                    "http_port {at}\nacl origin dstdomain {NAME}\nhttp_access allow origin\nhttp_access deny all\n\
                     cache deny all\ncache_mem 0 MB\naccess_log none\ncache_log /dev/null\ncache_store_log none\n\
                     pid_filename none\npinger_enable off\nmax_filedescriptors {}\nshutdown_lifetime 0\n\
                     coredump_dir /tmp\n",
                    descriptors()
                ),
                0o644,
            );
            let mut command = world.command("/usr/sbin/squid");
            command.args(["-N", "-f", "/etc/squid/bench.conf"]);
            Some((world.spawn(command).expect("squid"), "squid", at))
        })
    }

    /// tinyproxy without a log, which admits the server and nothing else.
    pub fn tinyproxy() -> Side {
        Side::of("tinyproxy", |world| {
            let at: SocketAddrV4 = "127.0.0.1:3129".parse().expect("an address");
            world.write("/etc/tinyproxy/bench.filter", format!("^{}$\n", NAME.replace('.', "\\.")), 0o644);
            world.write(
                "/etc/tinyproxy/bench.conf",
                format!(
                    "Listen {}\nPort {}\nTimeout 600\nMaxClients 20000\nLogFile \"/tmp/tinyproxy.log\"\nLogLevel Critical\n\
                     Allow 127.0.0.1\nFilter \"/etc/tinyproxy/bench.filter\"\nFilterDefaultDeny Yes\n",
                    at.ip(),
                    at.port()
                ),
                0o644,
            );
            let mut command = world.command("/usr/bin/tinyproxy");
            command.args(["-d", "-c", "/etc/tinyproxy/bench.conf"]);
            Some((world.spawn(command).expect("tinyproxy"), "tinyproxy", at))
        })
    }

    fn of(name: &str, start: impl FnOnce(&World) -> Option<(Child, &'static str, SocketAddrV4)>) -> Side {
        descriptors();
        let world = World::new().expect("a closed world");
        let said = world.shell(&format!(
            "ip address add {ADDRESS}/32 dev lo && echo '{ADDRESS} {NAME}' >>/etc/hosts && \
             cd /proc/sys/net/ipv4 && echo '1024 65535' >ip_local_port_range && echo 1 >tcp_tw_reuse"
        ));
        assert_eq!(said.code, Some(0), "{said}");
        world.inside().run(origin::start);
        let started = start(&world);
        let proxy = started.as_ref().map(|(_, _, at)| *at);
        let child = started.map(|(child, kind, _)| (child, kind));
        let side = Side { name: name.to_owned(), proxy, world, child };
        if let Some(at) = proxy {
            side.run(move || {
                let deadline = Instant::now() + PATIENCE;
                while TcpStream::connect(at).is_err() {
                    assert!(Instant::now() < deadline, "nobody listens on {at}");
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
        }
        side
    }

    /// Does something in the box.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        self.world.inside().run(job)
    }

    /// CPU time of its processes so far.
    pub fn cpu(&self) -> Duration {
        let each = self.processes().into_iter().map(|pid| {
            // Of all its threads, those that have ended too (clock_getcpuclockid(3)).
            let clock = clock_getcpuclockid(Pid::from_raw(pid as i32)).expect("a process that lives");
            Duration::from(clock_gettime(clock).expect("clock_gettime"))
        });
        each.sum()
    }

    /// Resident memory of its processes in KiB, what they share counted in each; and in parts (PSS).
    pub fn memory(&self) -> (u64, u64) {
        let of = |field: &str| {
            let each = self.processes().into_iter().map(|pid| {
                let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("a process that lives");
                let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
                line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().expect("KiB")
            });
            each.sum()
        };
        (of("Rss:"), of("Pss:"))
    }

    fn processes(&self) -> Vec<u32> {
        let Some((child, name)) = &self.child else { return Vec::new() };
        let mut found = vec![child.id()];
        let mut at = 0;
        while let Some(pid) = found.get(at) {
            let path = format!("/proc/{pid}/task/{pid}/children");
            let children = std::fs::read_to_string(path).expect("a process that lives");
            found.extend(children.split_whitespace().map(|pid| pid.parse::<u32>().expect("a number")));
            at += 1;
        }
        found.retain(|pid| {
            let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            comm.trim_end() == *name
        });
        found
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // Its command's input ends, and so does it; the world ends what is left.
        if let Some((child, _)) = &mut self.child {
            drop(child.stdin.take());
        }
    }
}
