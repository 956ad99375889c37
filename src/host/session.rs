//! What a user's own session offers to every process of the user: sockets whose other end acts outside, and credentials.

use super::sockets;
use super::survey::unix_path;
use crate::install::account::Identity;
use crate::policy::Policy;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Directories of sockets, wherever the session has them: what is put into one later is out of reach as well. `{uid}` and
/// `~` are filled in.
const DIRECTORIES: [&str; 11] = [
    // The session's bus, its agents, its display and sound servers, its container engine, its editors' command lines.
    "/run/user/{uid}",
    "/tmp/.X11-unix",
    "/tmp/.ICE-unix",
    "/tmp/.font-unix",
    // A multiplexer: whoever reaches it types into its terminals.
    "/run/screen",
    "/tmp/screens",
    // Engines and agents of the user's own.
    "~/.docker/run",
    "~/.docker/desktop",
    "~/.ssh/agent",
    "~/.colima",
    "~/.rd",
];

/// The same for those that the session's programs make when they start, which may be after the command: who reaches one types
/// into terminals, or has an editor run what it is sent.
const AWAITED: [&str; 2] = ["/tmp/tmux-{uid}", "/tmp/emacs{uid}"];

/// Variables that name a socket, by its path or by a URL with one.
const NAMING: [&str; 9] = [
    "SSH_AUTH_SOCK",
    "GPG_AGENT_INFO",
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "DOCKER_HOST",
    "CONTAINER_HOST",
    "TMUX",
    "VSCODE_IPC_HOOK_CLI",
    "NVIM",
];

/// Credentials of the user's, which are not for reading where the filesystem is locked.
const CREDENTIALS: [&str; 22] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/gh",
    ".config/hub",
    ".config/op",
    ".kube",
    ".docker",
    ".netrc",
    ".git-credentials",
    ".config/git/credentials",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".vault-token",
    ".local/share/keyrings",
    ".password-store",
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
];

/// What of a session is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Session {
    /// Where the user stands.
    pub directory: PathBuf,
    /// Sockets, and directories of them.
    pub sockets: Vec<PathBuf>,
    /// Directories of sockets that are missing so far.
    pub awaited: Vec<PathBuf>,
    /// Credentials.
    pub credentials: Vec<PathBuf>,
    /// What is at each path that the policy names as a socket: the socket, or why there is none.
    pub named: BTreeMap<PathBuf, Result<PathBuf, String>>,
}

/// Looks for them; the paths are free of symbolic links.
pub fn look(policy: &Policy, identity: &Identity, environment: impl Iterator<Item = (OsString, OsString)>) -> Session {
    let uid = identity.uid.as_raw();
    let home = |path: &str| match path.strip_prefix("~/") {
        Some(rest) => identity.home.join(rest),
        None => PathBuf::from(path.replace("{uid}", &uid.to_string())),
    };
    let mut places: Vec<PathBuf> = DIRECTORIES.iter().map(|path| home(path)).collect();
    let mut awaited: Vec<PathBuf> = AWAITED.iter().map(|path| home(path)).collect();
    for (name, value) in environment {
        let value = value.to_string_lossy();
        if name == "XDG_RUNTIME_DIR" {
            places.push(PathBuf::from(&*value));
        } else if name == "TMUX_TMPDIR" {
            awaited.push(Path::new(&*value).join(format!("tmux-{uid}")));
        } else if NAMING.iter().any(|known| name == *known) {
            places.extend(named_by(&value));
        }
    }
    let (there, awaited) = awaited.into_iter().partition::<Vec<_>, _>(|path| path.exists());
    places.extend(there);
    let mut found: BTreeSet<PathBuf> = places.iter().filter_map(|path| path.canonicalize().ok()).collect();
    found.extend(sockets::control());
    // Whatever else of the machine's is bound to a path and lets this user in.
    let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    found.extend(table.lines().skip(1).filter_map(unix_path).filter_map(|path| reachable(&path, uid)));
    // The home itself is never meant, whatever a variable says; nor is the machine.
    found.retain(|path| !identity.home.starts_with(path) && path.parent().is_some());
    let credentials = CREDENTIALS.iter().filter_map(|name| identity.home.join(name).canonicalize().ok()).collect();
    let named = policy.filesystem.sockets.iter().map(|socket| {
        let path = socket.resolve(&identity.home);
        let real =
            path.canonicalize().map_err(|cause| cause.to_string()).and_then(|real| match std::fs::metadata(&real) {
                Ok(meta) if meta.file_type().is_socket() => Ok(real),
                Ok(_) => Err("it is none".into()),
                Err(cause) => Err(cause.to_string()),
            });
        (path, real)
    });
    let directory = std::env::current_dir().unwrap_or_default();
    Session { directory, awaited, sockets: found.into_iter().collect(), credentials, named: named.collect() }
}

/// The path in a variable's value: the value itself, `unix:path=PATH,…`, `unix:///PATH`, or `PATH,…` of TMUX.
fn named_by(value: &str) -> Option<PathBuf> {
    let path = value.strip_prefix("unix:path=").or_else(|| value.strip_prefix("unix://")).unwrap_or(value);
    let path = path.split([',', ';']).next()?;
    path.starts_with('/').then(|| PathBuf::from(path))
}

/// Whether a variable's value names this socket.
pub fn names_socket(value: &OsString, socket: &Path) -> bool {
    value.to_str().and_then(named_by).is_some_and(|path| path == socket)
}

/// A socket's path without symbolic links, if it is one that this user may connect to by its mode.
fn reachable(path: &Path, uid: u32) -> Option<PathBuf> {
    let meta = std::fs::metadata(path).ok().filter(|meta| meta.file_type().is_socket())?;
    let own = meta.uid() == uid;
    // Groups are many: one that cannot be told apart by the mode alone counts as reachable.
    let open = if own { meta.mode() & 0o200 != 0 } else { meta.mode() & 0o022 != 0 };
    if open { path.canonicalize().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_a_variable_names_its_socket() {
        for value in ["/run/x/agent", "unix:path=/run/x/agent,guid=1", "unix:///run/x/agent", "/run/x/agent,12,0"] {
            assert_eq!(named_by(value), Some("/run/x/agent".into()), "{value}");
            assert!(names_socket(&value.into(), Path::new("/run/x/agent")));
        }
        for value in ["", "agent", "tcp://127.0.0.1:2375", "unix:abstract=/tmp/x"] {
            assert_eq!(named_by(value), None, "{value}");
        }
    }
}
