//! A real sshd outside, at port 22 of a public address, that serves a git repository. It sees the machine's files by a mount
//! namespace of its own, and ends with the world.

use crate::common::Fence;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use world::address::PUBLIC4;

/// The user that git logs in as, on the machine.
const GIT: u32 = 54_321;
/// The key in the box: root's, and everyone's to read. ssh is strict about a key of its own user only.
const KEY: &str = "/etc/keys/id";

/// The server.
pub struct Sshd {
    directory: tempfile::TempDir,
}

fn must(mut command: Command) -> String {
    let output = command.output().unwrap_or_else(|cause| panic!("{command:?}: {cause}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

fn shell(directory: &Path, script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(directory).env("HOME", directory);
    command
}

impl Sshd {
    /// Starts it, with one commit in its repository, and puts the key into the box.
    pub fn start(fence: &Fence) -> Sshd {
        let directory = tempfile::tempdir().expect("a directory");
        let top = directory.path().to_owned();
        let text = top.display();
        must(shell(
            &top,
            &format!(
                "chmod 0755 .; install -d -o {GIT} -g {GIT} repositories
                 ssh-keygen -q -t ed25519 -N '' -f host; ssh-keygen -q -t ed25519 -N '' -f id; chmod 0644 id.pub
                 printf 'root:x:0:0::/root:/bin/sh\\nsshd:x:103:65534::/run/sshd:/usr/sbin/nologin\\n' > passwd
                 printf 'git:x:{GIT}:{GIT}::{text}/repositories:/bin/sh\\n' >> passwd
                 printf 'root:*:1::::::\\nsshd:*:1::::::\\ngit:*:1::::::\\n' > shadow
                 setpriv --reuid {GIT} --regid {GIT} --clear-groups sh -ec '
                   export HOME={text}/repositories; cd repositories; git init -q -b main work; cd work
                   head -c 4000000 /dev/urandom > first; git add first
                   git -c user.name=x -c user.email=x@x.test commit -qm one; git clone -q --bare . ../project.git'"
            ),
        ));
        let config = format!(
            "Port 22\nListenAddress {PUBLIC4}\nHostKey {text}/host\nPidFile none\nUsePAM no\nUseDNS no\nStrictModes no\n\
             AuthorizedKeysFile {text}/id.pub\nPasswordAuthentication no\nLogLevel VERBOSE\nMaxStartups 100\n"
        );
        std::fs::write(top.join("config"), config).expect("write the configuration");
        fence.world.write(KEY, std::fs::read(top.join("id")).expect("the key"), 0o644);
        // Its own account files, and the directory that it wants in /run.
        let script = "mount -t tmpfs tmpfs /run; mkdir /run/sshd; mount --bind passwd /etc/passwd
                      mount --bind shadow /etc/shadow; exec /usr/sbin/sshd -D -f \"$PWD/config\" -E \"$PWD/log\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-ec", script]).current_dir(&top);
        let mut child = fence.world.outside().run(move || command.spawn()).expect("sshd starts");
        thread::spawn(move || child.wait());
        let sshd = Sshd { directory };
        let deadline = Instant::now() + Duration::from_secs(20);
        while !sshd.log().contains("Server listening") {
            assert!(Instant::now() < deadline, "sshd does not listen: {}", sshd.log());
            thread::sleep(Duration::from_millis(20));
        }
        sshd
    }

    /// The URL of its repository by this name.
    pub fn url(&self, host: &str) -> String {
        format!("ssh://git@{host}{}", self.repository().display())
    }

    fn repository(&self) -> PathBuf {
        self.directory.path().join("repositories/project.git")
    }

    /// What it has written to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// How many connections it has seen.
    pub fn connections(&self) -> usize {
        self.log().matches("Connection from ").count()
    }

    /// What git says of the repository, as its owner.
    pub fn git(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("setpriv");
        let id = GIT.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "git", "-C"]).arg(self.repository());
        command.args(arguments).env("HOME", self.directory.path().join("repositories"));
        must(command)
    }
}

/// The caller's `GIT_SSH_COMMAND`: a key, and no question about the server's.
pub fn git_ssh_command() -> String {
    format!(
        "ssh -i {KEY} -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    )
}
