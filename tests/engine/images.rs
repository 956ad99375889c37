//! The images of the containers, made of this machine's files: offline, and the same programs that the machine runs.

use super::{Engine, PLACE};
use crate::attempts;
use crate::common::{RINGFENCE, tested};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use world::Said;

/// What an image holds besides ringfence and [`SESSION`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tree {
    /// The packages of a small Debian or Ubuntu, from the machine's own: a shell, the usual commands, curl, set-id programs.
    Debian,
    /// busybox alone, under the names of its commands.
    Busybox,
    /// Nothing.
    Scratch,
}

impl Tree {
    /// Each of them.
    pub const ALL: [Tree; 3] = [Tree::Debian, Tree::Busybox, Tree::Scratch];

    /// The name of the image that [`Engine::import`] makes of it.
    pub fn name(self) -> &'static str {
        match self {
            Tree::Debian => "debian-tree",
            Tree::Busybox => "busybox-tree",
            Tree::Scratch => "scratch-tree",
        }
    }
}

/// Where the static program lies that tries what an agent may try, one line an act.
pub const SESSION: &str = "/usr/local/bin/session";
/// A file of the images that its mode lets everyone write, in a directory where everyone may.
pub const PROTECTED: &str = "/usr/local/share/protected/file";

impl Engine {
    /// Makes the image of a tree, with ringfence and the session's program in it.
    pub fn import(&self, tree: Tree) {
        let top = format!("{PLACE}/trees/{}", tree.name());
        let write = |path: &str, bytes: &[u8], mode| self.fence.world.write(&format!("{top}{path}"), bytes, mode);
        write(RINGFENCE, &std::fs::read(tested::binary()).expect("the binary"), 0o755);
        write(SESSION, session(), 0o755);
        write(PROTECTED, b"as the image has it\n", 0o666);
        self.shell(&format!(
            "cd {top}/usr/local/share && chmod 0777 protected && cd {top} && mkdir app tmp && chmod 1777 tmp"
        ));
        match tree {
            Tree::Scratch => {}
            Tree::Busybox => {
                self.fence.world.install(Path::new("/bin/busybox"), &format!("{top}/bin/busybox"));
                self.shell(&format!(
                    "cd {top}/bin && for name in $(./busybox --list); do [ -e $name ] || ln -s busybox $name; done"
                ));
            }
            Tree::Debian => {
                let list = format!("{PLACE}/files");
                self.fence.world.write(&list, files_of_packages().join("\n"), 0o644);
                // What follows is what the packages' scripts make of their files.
                self.shell(&format!(
                    "set -o pipefail; tar -c -C / --no-recursion --files-from {list} | tar -x -C {top} &&
                     cp /usr/share/base-passwd/passwd.master {top}/etc/passwd &&
                     cp /usr/share/base-passwd/group.master {top}/etc/group && mkdir -p {top}/root"
                ));
            }
        }
        self.shell(&format!(
            "set -o pipefail; tar -c --numeric-owner -C {top} . | DOCKER_HOST=unix://{PLACE}/docker.sock docker import - {} >/dev/null && rm -r {top}",
            tree.name()
        ));
    }

    /// Builds an image named `name` of a Dockerfile's text, beside which lies the binary as `ringfence`.
    pub fn build(&self, name: &str, dockerfile: &str) {
        let place = format!("{PLACE}/build/{name}");
        self.fence.world.write(&format!("{place}/Dockerfile"), dockerfile, 0o644);
        self.fence.world.install(&tested::binary(), &format!("{place}/ringfence"));
        self.done(&["build", "--quiet", "--tag", name, &place]);
    }

    /// Runs a script in the box, which must succeed.
    fn shell(&self, script: &str) {
        let mut command = self.fence.world.command("bash");
        command.args(["-c", script]);
        let said = Said::from(self.fence.world.output(command));
        assert_eq!(said.code, Some(0), "{script}: {said}");
    }
}

/// The session's program, compiled once a process.
pub fn session() -> &'static [u8] {
    static PROGRAM: OnceLock<Vec<u8>> = OnceLock::new();
    PROGRAM.get_or_init(|| attempts::compile("tests/engine/session.c"))
}

/// What the tree is asked to have; what they depend on comes with them.
const PACKAGES: [&str; 16] = [
    "base-files",
    "base-passwd",
    "bash",
    "coreutils",
    "curl",
    "dash",
    "debianutils",
    "findutils",
    "grep",
    "libc-bin",
    "login",
    "mount",
    "passwd",
    "procps",
    "sed",
    "util-linux",
];
/// What of their files nothing runs.
const LEFT_OUT: [&str; 5] =
    ["/usr/share/doc", "/usr/share/man", "/usr/share/locale", "/usr/share/info", "/var/lib/dpkg"];

/// The files of [`PACKAGES`] and of what they depend on, as paths without links in them and without the leading slash.
fn files_of_packages() -> Vec<String> {
    let packages = with_dependencies();
    let listed = output(Command::new("dpkg-query").arg("-L").args(&packages));
    // Links that stand in for directories (/bin), files that scripts of packages make, and where the links of /usr/bin lead.
    let mut found: BTreeSet<PathBuf> =
        ["/bin", "/sbin", "/lib", "/lib64", "/etc/ssl/certs/ca-certificates.crt"].map(PathBuf::from).into();
    for line in listed.lines().filter(|line| line.starts_with('/')) {
        let path = Path::new(line);
        if path.symlink_metadata().is_ok() && !LEFT_OUT.iter().any(|place| path.starts_with(place)) {
            found.extend(real_place(path));
        }
    }
    let mut found: Vec<PathBuf> = found.into_iter().filter(|path| path.symlink_metadata().is_ok()).collect();
    found.sort();
    found
        .iter()
        .filter_map(|path| path.strip_prefix("/").ok()?.to_str())
        .filter(|p| !p.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The path with the links in its directories followed, and not in its last name.
fn real_place(path: &Path) -> Option<PathBuf> {
    Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
}

fn with_dependencies() -> BTreeSet<String> {
    let text =
        output(Command::new("dpkg-query").args(["-W", "-f", "${Package}\t${Provides}\t${Pre-Depends}, ${Depends}\n"]));
    let (mut providers, mut needs) = (BTreeMap::<&str, &str>::new(), BTreeMap::<&str, Vec<&str>>::new());
    let names = |list| -> Vec<&str> {
        let parts = str::split(list, [',', '|']);
        parts.map(|part| part.split([' ', ':', '(']).find(|word| !word.is_empty()).unwrap_or_default()).collect()
    };
    for line in text.lines() {
        let [package, provides, depends] = line.splitn(3, '\t').collect::<Vec<_>>()[..] else { continue };
        providers.extend(names(provides).into_iter().map(|name| (name, package)));
        needs.insert(package, names(depends));
    }
    let (mut found, mut open) = (BTreeSet::new(), PACKAGES.to_vec());
    while let Some(name) = open.pop() {
        // An alternative that is not installed is not what the machine runs by.
        let package = if needs.contains_key(name) { Some(name) } else { providers.get(name).copied() };
        if let Some(package) = package
            && found.insert(package.to_owned())
        {
            open.extend(&needs[package]);
        }
    }
    let lacking: Vec<&str> = PACKAGES.into_iter().filter(|package| !found.contains(*package)).collect();
    assert!(lacking.is_empty(), "not installed: {lacking:?} (.ci/deps)");
    found
}

fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("dpkg-query runs");
    // It says so of a package that is removed and not purged; what is found counts.
    String::from_utf8(output.stdout).expect("dpkg-query speaks UTF-8")
}
