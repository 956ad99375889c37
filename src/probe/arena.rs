//! Bait for the probes, put up with privilege in the sandbox and taken away before the command starts:
//! a program of root's with the set-id bits, one with a file capability, one with neither, and an abstract unix socket of
//! the outside.

use crate::sys;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::mount::{MntFlags, umount2};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::mkdir;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Where the bait's file system is attached where there are mounts: a directory that every procfs has, and that no probe of
/// the trees looks at. It is attached after every mount was made nosuid, so that only the process's own state makes set-id
/// bits void there.
pub const MOUNT_POINT: &str = "/proc/fs";
/// The set-uid and set-gid program.
const SET_ID: &str = "set-id";
/// The program with a file capability.
const FILE_CAPABILITY: &str = "file-capability";
/// The program without either.
const PLAIN: &str = "plain";

/// The bait's programs.
#[derive(Debug, Clone, Default)]
pub struct Programs {
    /// Where they are.
    pub directory: PathBuf,
    /// Whether root has made them, so that there are some that would give something.
    pub gives: bool,
}

impl Programs {
    /// The program with the set-id bits.
    pub fn set_id(&self) -> PathBuf {
        self.directory.join(SET_ID)
    }

    /// The one with a file capability.
    pub fn file_capability(&self) -> PathBuf {
        self.directory.join(FILE_CAPABILITY)
    }

    /// The one with neither.
    pub fn plain(&self) -> PathBuf {
        self.directory.join(PLAIN)
    }
}

/// Where the programs are put.
#[derive(Debug, Clone)]
pub enum Ground {
    /// On a file system of their own.
    Mount,
    /// In a directory of the first of these in which programs can be executed; nowhere, if there is none.
    Directories(Vec<PathBuf>),
}

/// The bait while it is up.
#[derive(Debug, Default)]
pub struct Arena {
    programs: Option<Programs>,
    attached: bool,
    outside: Option<OwnedFd>,
}

fn fail(call: &'static str) -> impl FnOnce(Errno) -> String {
    move |errno| format!("probes: bait: {call}: {errno}")
}

impl Arena {
    /// Puts the bait up; `outside_name` is the abstract socket's name.
    pub fn put_up(outside_name: &str, ground: &Ground) -> Result<Arena, String> {
        let mut arena = Arena::default();
        match ground {
            Ground::Mount => {
                let tree = sys::new_tmpfs(0o755, sys::ATTR_NODEV).map_err(fail("fsmount"))?;
                programs(&tree, true)?;
                let point = open(MOUNT_POINT, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).map_err(fail("open"))?;
                sys::move_mount(tree.as_fd(), point.as_fd()).map_err(fail("move_mount"))?;
                arena.programs = Some(Programs { directory: MOUNT_POINT.into(), gives: true });
                arena.attached = true;
            }
            Ground::Directories(candidates) => {
                for candidate in candidates.iter().filter(|path| path.is_dir()) {
                    arena.programs = programs_in(candidate, outside_name)?;
                    if arena.programs.is_some() {
                        break;
                    }
                }
            }
        }
        // Where Landlock stands for mounts this process is in its domain, and what it binds is no outsider's.
        if matches!(ground, Ground::Mount) {
            arena.outside = Some(outside(outside_name)?);
        }
        Ok(arena)
    }

    /// The programs, where there are any.
    pub fn programs(&self) -> Option<&Programs> {
        self.programs.as_ref()
    }

    /// Takes the bait away and looks that it is gone.
    pub fn clear(self) -> Result<(), String> {
        drop(self.outside);
        let Some(programs) = self.programs else { return Ok(()) };
        if self.attached {
            umount2(MOUNT_POINT, MntFlags::MNT_DETACH).map_err(fail("umount2"))?;
        } else {
            remove(&programs.directory)?;
        }
        let all = [programs.plain(), programs.set_id(), programs.file_capability()];
        match all.iter().find(|path| std::fs::exists(path).unwrap_or(true)) {
            Some(left) => Err(format!("probes: bait: {} is still there", left.display())),
            None => Ok(()),
        }
    }
}

/// An abstract unix socket that listens.
pub fn outside(name: &str) -> Result<OwnedFd, String> {
    let outside =
        socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).map_err(fail("socket"))?;
    let name = UnixAddr::new_abstract(name.as_bytes()).map_err(fail("bind"))?;
    bind(outside.as_raw_fd(), &name).map_err(fail("bind"))?;
    listen(&outside, Backlog::new(1).map_err(fail("listen"))?).map_err(fail("listen"))?;
    Ok(outside)
}

/// CAP_NET_RAW (capabilities(7)).
const NET_RAW: u32 = 13;

/// Puts the programs into a new directory within `place`, unless programs there are not executed or none can be made.
fn programs_in(place: &Path, outside_name: &str) -> Result<Option<Programs>, String> {
    let name = outside_name.rsplit('/').next().unwrap_or(outside_name);
    let directory = place.join(format!("{}{name}", super::filesystem::SCRATCH));
    match mkdir(&directory, Mode::from_bits_truncate(0o755)) {
        Ok(()) => {}
        // It is full, read-only in the image, or another's: another probe tells whether it can be written.
        Err(Errno::EACCES | Errno::EPERM | Errno::EROFS | Errno::ENOSPC) => return Ok(None),
        Err(errno) => return Err(fail("mkdir")(errno)),
    }
    let gives = nix::unistd::geteuid().is_root();
    let found = Programs { directory, gives };
    let made = (|| {
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let at = open(&found.directory, flags, Mode::empty()).map_err(fail("open"))?;
        // The caller's umask may have closed it.
        fchmod(&at, Mode::from_bits_truncate(0o755)).map_err(fail("fchmod"))?;
        programs(&at, gives)?;
        Ok(super::child::executed(&found.plain()) == "ok")
    })();
    match made {
        Ok(true) => Ok(Some(found)),
        outcome => {
            remove(&found.directory)?;
            outcome.map(|_| None)
        }
    }
}

fn remove(directory: &Path) -> Result<(), String> {
    std::fs::remove_dir_all(directory).map_err(|e| format!("probes: bait: remove {}: {e}", directory.display()))
}

fn programs(tree: &OwnedFd, gives: bool) -> Result<(), String> {
    program(tree, PLAIN, 0o755)?;
    if !gives {
        return Ok(());
    }
    program(tree, SET_ID, 0o6755)?;
    let file = program(tree, FILE_CAPABILITY, 0o755)?;
    sys::set_file_capability(file.as_fd(), NET_RAW).map_err(fail("fsetxattr"))
}

fn program(tree: &OwnedFd, name: &str, mode: u32) -> Result<File, String> {
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let mut file = File::from(openat(tree, name, flags, Mode::empty()).map_err(fail("openat"))?);
    file.write_all(&executable()).map_err(|e| format!("probes: bait: write: {e}"))?;
    fchmod(&file, Mode::from_bits_truncate(mode)).map_err(fail("fchmod"))?;
    Ok(file)
}

// The program's exit status has bit 0 set when its effective uid is not its real one, bit 1 the same of the gid, and bit 2
// when it could open a raw ICMP socket: `getuid`, `geteuid`, `getgid`, `getegid`, `socket(AF_INET, SOCK_RAW, 1)`, `exit`.
#[cfg(target_arch = "x86_64")]
const CODE: &[u8] = &[
    0xb8, 0x66, 0x00, 0x00, 0x00, 0x0f, 0x05, 0x89, 0xc5, 0xb8, 0x6b, 0x00, 0x00, 0x00, 0x0f, 0x05, 0x31, 0xdb, 0x39,
    0xc5, 0x0f, 0x95, 0xc3, 0xb8, 0x68, 0x00, 0x00, 0x00, 0x0f, 0x05, 0x89, 0xc5, 0xb8, 0x6c, 0x00, 0x00, 0x00, 0x0f,
    0x05, 0x39, 0xc5, 0x74, 0x03, 0x83, 0xcb, 0x02, 0xb8, 0x29, 0x00, 0x00, 0x00, 0xbf, 0x02, 0x00, 0x00, 0x00, 0xbe,
    0x03, 0x00, 0x00, 0x00, 0xba, 0x01, 0x00, 0x00, 0x00, 0x0f, 0x05, 0x85, 0xc0, 0x78, 0x03, 0x83, 0xcb, 0x04, 0x89,
    0xdf, 0xb8, 0x3c, 0x00, 0x00, 0x00, 0x0f, 0x05,
];
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;

#[cfg(target_arch = "aarch64")]
const CODE: &[u8] = &[
    0xc8, 0x15, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4, 0xf3, 0x03, 0x00, 0x2a, 0xe8, 0x15, 0x80, 0xd2, 0x01, 0x00, 0x00,
    0xd4, 0x7f, 0x02, 0x00, 0x6b, 0xf4, 0x07, 0x9f, 0x1a, 0x08, 0x16, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4, 0xf3, 0x03,
    0x00, 0x2a, 0x28, 0x16, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4, 0x7f, 0x02, 0x00, 0x6b, 0x40, 0x00, 0x00, 0x54, 0x94,
    0x02, 0x1f, 0x32, 0x40, 0x00, 0x80, 0xd2, 0x61, 0x00, 0x80, 0xd2, 0x22, 0x00, 0x80, 0xd2, 0xc8, 0x18, 0x80, 0xd2,
    0x01, 0x00, 0x00, 0xd4, 0x40, 0x00, 0xf8, 0x37, 0x94, 0x02, 0x1e, 0x32, 0xe0, 0x03, 0x14, 0x2a, 0xa8, 0x0b, 0x80,
    0xd2, 0x01, 0x00, 0x00, 0xd4,
];
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// The program as an ELF file (elf(5)): one header, one loadable segment, the code.
fn executable() -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    let length = HEADERS + CODE.len() as u64;
    let mut elf = Vec::with_capacity(length as usize);
    // Class 64, little-endian, version 1, System V.
    elf.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    elf.extend_from_slice(&2u16.to_le_bytes());
    elf.extend_from_slice(&MACHINE.to_le_bytes());
    elf.extend_from_slice(&1u32.to_le_bytes());
    for offset in [BASE + HEADERS, 64, 0] {
        elf.extend_from_slice(&offset.to_le_bytes());
    }
    elf.extend_from_slice(&0u32.to_le_bytes());
    for size in [64u16, 56, 1, 0, 0, 0] {
        elf.extend_from_slice(&size.to_le_bytes());
    }
    // PT_LOAD, readable and executable.
    elf.extend_from_slice(&1u32.to_le_bytes());
    elf.extend_from_slice(&5u32.to_le_bytes());
    for field in [0, BASE, BASE, length, length, 0x1000] {
        elf.extend_from_slice(&field.to_le_bytes());
    }
    elf.extend_from_slice(CODE);
    elf
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn the_program_tells_what_it_gained() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = directory.path().join("program");
        std::fs::write(&path, executable()).unwrap();
        let run = |mode: u32| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Command::new(&path).uid(10001).gid(10001).status().unwrap().code().unwrap()
        };
        assert_eq!(run(0o755), 0, "nothing gained without the bits");
        assert_eq!(run(0o6755), 7, "live vector: uid, gid and a raw socket");
        let file = std::fs::File::open(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        sys::set_file_capability(file.as_fd(), NET_RAW).unwrap();
        assert_eq!(
            Command::new(&path).uid(10001).gid(10001).status().unwrap().code(),
            Some(4),
            "live vector: a raw socket"
        );
    }
}
