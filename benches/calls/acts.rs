//! The program that is measured: each call many times over, and what one took.

use crate::rounds::line::By;
use nix::fcntl::{OFlag, open};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, connect, socket};
use nix::sys::stat::{Mode, stat};
use nix::unistd::{getpid, unlink};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::hint::black_box;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Instant;

/// The argument that makes this program the one that is measured.
pub const INSIDE: &str = "--inside";
/// How many batches of each act are timed. Each is short, so that most have the processor to themselves.
const BATCHES: usize = 41;
/// Of them in order, the one that counts: what else the machine does only adds.
const COUNTS: usize = BATCHES / 4;

/// What is measured.
pub struct Act {
    pub name: &'static str,
    pub title: &'static str,
    pub note: &'static str,
    /// How often in one batch.
    pub times: usize,
    pub goal: Option<(By, f64)>,
}

const fn act(name: &'static str, title: &'static str, times: usize, goal: Option<(By, f64)>) -> Act {
    Act { name, title, note: "", times, goal }
}

const LIKE_BARE: Option<(By, f64)> = Some((By::RatioAtMost, 1.1));

pub const ACTS: [Act; 9] = [
    act("getpid", "getpid(2)", 2000, LIKE_BARE),
    act("stat", "stat(2) of a file", 400, LIKE_BARE),
    act("read-open", "open(2) of a file for reading, and close(2)", 200, LIKE_BARE),
    act("write-open", "open(2) of a file for writing, and close(2)", 40, Some((By::ExcessAtMost, 7.0))),
    act("create", "open(2) of a new file, close(2) and unlink(2)", 20, None),
    act("rename", "rename(2)", 40, None),
    act("chmod", "chmod(2)", 40, None),
    Act {
        note: "With socket(2), accept(2) and close(2) of both ends, on loopback.",
        ..act("connect", "connect(2) of a stream socket", 20, Some((By::ExcessAtMost, 8.0)))
    },
    act("fork+exec", "fork(2) and execve(2) of `true`, to its end", 2, LIKE_BARE),
];

/// Measures all and prints the µs of each.
pub fn measure() {
    let mut arguments = std::env::args().skip(2);
    let mut next = || arguments.next().expect("INSIDE DIRECTORY SHARE");
    let (directory, share) = (next(), next().parse::<usize>().expect("SHARE"));
    let named = |what: &str| format!("{directory}/calls-{}-{what}", std::process::id());
    let c = |text: &str| CString::new(text).expect("no NUL");
    let (there, new, other) = (named("there"), named("new"), named("other"));
    std::fs::write(&there, "here").expect("a file");
    let (file, created, renamed) = (c(&there), c(&new), c(&other));
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let to = SockaddrIn::new(127, 0, 0, 1, listener.local_addr().expect("an address").port());
    let mut found = BTreeMap::new();
    for Act { name, times, .. } in &ACTS {
        // Even, so that what is renamed has its own name at the end.
        let times = (times / share).max(2);
        let mut names = [&file, &renamed];
        let mut one: Box<dyn FnMut()> = match *name {
            "getpid" => Box::new(|| _ = black_box(getpid())),
            "stat" => Box::new(|| _ = stat(file.as_c_str()).expect("stat")),
            "read-open" => Box::new(|| drop(open(file.as_c_str(), OFlag::O_RDONLY, Mode::empty()).expect("open"))),
            "write-open" => Box::new(|| drop(open(file.as_c_str(), OFlag::O_WRONLY, Mode::empty()).expect("open"))),
            "create" => Box::new(|| {
                let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
                drop(open(created.as_c_str(), flags, Mode::S_IRUSR | Mode::S_IWUSR).expect("create"));
                unlink(created.as_c_str()).expect("unlink");
            }),
            "rename" => Box::new(|| {
                nix::fcntl::renameat(
                    nix::fcntl::AT_FDCWD,
                    names[0].as_c_str(),
                    nix::fcntl::AT_FDCWD,
                    names[1].as_c_str(),
                )
                .expect("rename");
                names.swap(0, 1);
            }),
            "chmod" => Box::new(|| {
                let follow = nix::sys::stat::FchmodatFlags::FollowSymlink;
                nix::sys::stat::fchmodat(nix::fcntl::AT_FDCWD, file.as_c_str(), Mode::S_IRUSR | Mode::S_IWUSR, follow)
                    .expect("chmod");
            }),
            "connect" => Box::new(|| {
                let socket =
                    socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).expect("socket");
                connect(socket.as_raw_fd(), &to).expect("connect");
                listener.accept().expect("accept");
            }),
            _ => Box::new(|| assert!(Command::new("/bin/true").status().expect("true").success())),
        };
        let mut batches: Vec<f64> = (0..BATCHES)
            .map(|_| {
                let begun = Instant::now();
                (0..times).for_each(|_| one());
                begun.elapsed().as_secs_f64() * 1e6 / times as f64
            })
            .collect();
        batches.sort_by(f64::total_cmp);
        found.insert(*name, batches[COUNTS]);
    }
    std::fs::remove_file(&there).expect("what was made goes");
    println!("{}", serde_json::to_string(&found).expect("JSON"));
}
