//! Reading the small files of /proc/PID.

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{BorrowedFd, OwnedFd};

/// A file of /proc as text; what is no UTF-8, as a thread's name may be, is replaced. The standard library reads files of
/// unknown length in small steps, and every step makes the kernel write the whole text anew; a start reads hundreds of them.
pub fn read(path: &str) -> io::Result<String> {
    let mut text = Vec::with_capacity(8192);
    // A reader of no known length is not asked for one, which no file of /proc has.
    File::open(path)?.take(u64::MAX).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// One of the files of a process that the kernel writes in one piece: status, stat, comm. A read(2) that has room for more has all
/// of it, so nothing is asked about its length; a listing of all processes reads hundreds of them.
pub fn whole(path: &str) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut text = vec![0; 4096];
    let mut length = 0;
    loop {
        length += file.read(&mut text[length..])?;
        if length < text.len() {
            text.truncate(length);
            return Ok(
                String::from_utf8(text).unwrap_or_else(|text| String::from_utf8_lossy(text.as_bytes()).into_owned())
            );
        }
        text.resize(2 * length, 0);
    }
}

/// A field of /proc/PID/status (proc_pid_status(5)) or its like, by its name with the colon. A process's name may hold
/// anything but a line feed, which is escaped there.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// The directory of a process or a thread. While it is held its files are those of this very process: when it is gone they
/// give ESRCH or ENOENT, whoever has its number then.
pub fn directory(id: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(format!("/proc/{id}").as_str(), flags, Mode::empty())
}

/// The first bytes of a file in a directory of /proc, up to the buffer's length, in one read(2). Their number is less only
/// where the file ends.
pub fn read_at<'b>(directory: BorrowedFd<'_>, name: &str, buffer: &'b mut [u8]) -> Result<&'b [u8], Errno> {
    let file = openat(directory, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    let length = nix::unistd::read(&file, buffer)?;
    Ok(&buffer[..length])
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    #[test]
    fn a_status_is_read_whole() {
        assert_eq!(
            super::read("/proc/self/status").unwrap().lines().count(),
            std::fs::read_to_string("/proc/self/status").unwrap().lines().count()
        );
    }

    #[test]
    fn a_status_longer_than_the_first_read_is_read_whole() {
        // Its groups make a process's status as long as one likes.
        let groups: Vec<nix::unistd::Gid> = (100_000..103_000).map(nix::unistd::Gid::from_raw).collect();
        nix::unistd::setgroups(&groups).expect("root");
        let text = super::whole("/proc/self/status").unwrap();
        assert!(text.len() > 8192 && super::field(&text, "nonvoluntary_ctxt_switches:").is_some(), "{}", text.len());
        assert_eq!(super::field(&text, "Groups:").map(|groups| groups.split(' ').count()), Some(groups.len()));
    }

    #[test]
    fn a_name_that_is_no_text_does_not_hide_the_rest() {
        let spawned = std::thread::spawn(|| {
            crate::sys::call::call(
                libc::SYS_prctl,
                [
                    crate::sys::call::Argument::Number(libc::PR_SET_NAME as u64),
                    crate::sys::call::Argument::Memory(&mut b"\xff\xfe\0             ".to_vec()),
                ],
            )
            .unwrap();
            super::read("/proc/thread-self/status").unwrap()
        });
        let text = spawned.join().unwrap();
        assert!(text.lines().any(|line| line.starts_with("Umask:")), "{text}");
    }

    #[test]
    fn a_held_directory_does_not_become_another_process() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let held = super::directory(child.id()).unwrap();
        let mut buffer = [0; 64];
        assert_eq!(super::read_at(held.as_fd(), "comm", &mut buffer).unwrap(), b"sleep\n");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(super::read_at(held.as_fd(), "comm", &mut buffer).is_err());
    }
}
