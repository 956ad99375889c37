//! The command's environment: the caller's, less what must not be passed, with what tools need behind a loopback proxy
//! and in a home that is read-only. What and why is data: `harnesses/tools.toml`, `harnesses/dropped.toml`.

use super::axis::Posture;
use super::effective::Policy;
use crate::host::session::names_socket;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// One variable of the data files.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value, with `{proxy_url}`, `{proxy_host}`, `{proxy_port}`, `{home}` and `{program}` to be filled in.
    pub value: String,
    /// When it is set.
    pub when: When,
    /// What becomes of the caller's value.
    pub merge: Merge,
    /// Why it is needed.
    pub reason: String,
}

/// When a variable is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// Egress goes through the proxy.
    Proxy,
    /// ssh in the command's view gets through the proxy by this program.
    Ssh,
    /// The filesystem axis is above `open`.
    ReadOnlyHome,
}

/// What becomes of a value that the caller's environment holds already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Merge {
    /// Ours stands in its place.
    Replace,
    /// It stays.
    Keep,
    /// Ours follows it after a space.
    Append,
    /// It is a path: it stays where the command may write there.
    Path,
}

/// A file that a rung with mounts lays over the image's own for the command.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolFile {
    /// Where it may be; `*` stands for one path component.
    pub paths: Vec<String>,
    /// The text that follows the image's own, with the placeholders of [`Variable::value`].
    pub append: String,
    /// When it is laid.
    pub when: When,
    /// Why.
    pub reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tools {
    variable: Vec<Variable>,
    file: Vec<ToolFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DroppedFile {
    dropped: Vec<Dropped>,
}

/// Variables that are not passed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Dropped {
    /// Names; a `*` at the start or the end stands for any text.
    pub names: Vec<String>,
    /// Whether letters match in either case.
    #[serde(default)]
    pub any_case: bool,
    /// Why.
    pub reason: String,
}

static TOOLS: LazyLock<Tools> =
    LazyLock::new(|| toml::from_str(include_str!("../../harnesses/tools.toml")).expect("a test parses the file"));

static DROPPED: LazyLock<Vec<Dropped>> = LazyLock::new(|| {
    let file: DroppedFile =
        toml::from_str(include_str!("../../harnesses/dropped.toml")).expect("a test parses the file");
    file.dropped
});

/// What an environment is composed from besides the policy.
pub struct Facts<'a> {
    /// The caller's variables, in the order of its environment.
    pub caller: &'a [(OsString, OsString)],
    /// Variables that were asked for by name, for this command alone; of two with one name the last counts.
    pub added: &'a [(OsString, OsString)],
    /// The command's home.
    pub home: &'a Path,
    /// The command's user, for USER and LOGNAME; none where the identity is kept.
    pub user: Option<&'a str>,
    /// Where the proxy listens; none where egress doesn't go through it.
    pub proxy: Option<SocketAddr>,
    /// This program's file, where the command may start it for ssh.
    pub connector: Option<&'a Path>,
    /// Whether the command may write at a path, by the policy.
    pub writable: &'a dyn Fn(&Path) -> bool,
}

/// Where a shell looks for programs when nothing says so; Debian's default.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The command's environment, sorted by name.
///
/// Where the policy restricts nothing it is the caller's, less what the policy drops. A variable that the policy
/// passes by name is the caller's, whatever stands in the data. A name that stands twice in the caller's environment
/// has its first value, as getenv(3) gives it. What was added stands before the caller's, and is there also where that is
/// not passed as a whole.
pub fn compose(policy: &Policy, facts: &Facts<'_>) -> Vec<(OsString, OsString)> {
    let named =
        |list: &[super::values::EnvName], name: &OsStr| list.iter().any(|known| OsStr::new(known.as_str()) == name);
    let passed = |name: &OsStr| named(&policy.environment.pass, name);
    let postures = policy.postures();
    let restricted = postures.network.max(postures.filesystem).max(postures.privilege) > Posture::Open;

    let mut env: BTreeMap<OsString, OsString> = BTreeMap::new();
    let added = facts.added.iter().rev().map(|variable| (variable, false));
    for ((name, value), cleared) in
        added.chain(facts.caller.iter().map(|variable| (variable, policy.environment.clear)))
    {
        let named_socket = policy.filesystem.sockets.iter().any(|s| names_socket(value, &s.resolve(facts.home)));
        let lost =
            cleared || named(&policy.environment.drop, name) || (restricted && !named_socket && is_dropped(name));
        if passed(name) || !lost {
            env.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    if restricted {
        let identity = [
            ("HOME", Some(facts.home.as_os_str())),
            ("USER", facts.user.map(OsStr::new)),
            ("LOGNAME", facts.user.map(OsStr::new)),
        ];
        for (name, value) in identity.into_iter().filter_map(|(name, value)| Some((OsStr::new(name), value?))) {
            if !passed(name) {
                env.insert(name.to_owned(), value.to_owned());
            }
        }
        env.entry("PATH".into()).or_insert_with(|| DEFAULT_PATH.into());
    }
    let callers_own: BTreeSet<OsString> = env.keys().filter(|name| passed(name)).cloned().collect();
    for variable in TOOLS.variable.iter().chain(&policy.harness().variables) {
        let name = OsStr::new(&variable.name);
        let wanted = match variable.when {
            When::Proxy => facts.proxy.is_some(),
            When::Ssh => facts.connector.is_some(),
            When::ReadOnlyHome => policy.filesystem.posture > Posture::Open,
        };
        if !wanted || callers_own.contains(name) {
            continue;
        }
        let ours = fill(&variable.value, facts.proxy, facts.home, facts.connector);
        let value = match (env.get(name), variable.merge) {
            (Some(_), Merge::Keep) => continue,
            (Some(theirs), Merge::Path) if (facts.writable)(Path::new(theirs)) => continue,
            (Some(theirs), Merge::Append) => joined(theirs, &ours),
            _ => ours,
        };
        env.insert(name.to_owned(), value);
    }
    env.into_iter().collect()
}

/// Everything that tools need behind a proxy that lets ssh through, and with a read-only home, harness apart, over an empty
/// environment.
pub fn tool_environment(proxy: SocketAddr, home: &Path, connector: &Path) -> Vec<(String, String)> {
    let mut env: BTreeMap<String, String> = BTreeMap::new();
    for variable in &TOOLS.variable {
        let ours = fill(&variable.value, Some(proxy), home, Some(connector)).to_string_lossy().into_owned();
        match env.get_mut(&variable.name) {
            Some(value) if variable.merge == Merge::Append => {
                value.push(' ');
                value.push_str(&ours);
            }
            _ => {
                env.insert(variable.name.clone(), ours);
            }
        }
    }
    env.into_iter().collect()
}

/// The files that tools need laid over the image's, with the text that follows the image's own.
pub fn tool_files(proxy: SocketAddr) -> Vec<(&'static ToolFile, String)> {
    let filled = |file: &'static ToolFile| {
        let text = fill(&file.append, Some(proxy), Path::new("/"), None).to_string_lossy().into_owned();
        (file, text)
    };
    TOOLS.file.iter().map(filled).collect()
}

/// The directories of [`compose`]'s paths that must exist because the tools don't make their parents: all lie below the
/// home.
pub fn home_directories(home: &Path) -> Vec<PathBuf> {
    [".cache", ".config", ".local", ".local/bin", ".local/share", ".local/state"].map(|name| home.join(name)).into()
}

/// Whether a variable of the caller's is not passed to a restricted command.
pub fn is_dropped(name: impl AsRef<OsStr>) -> bool {
    reason_dropped(name.as_ref()).is_some()
}

/// Why a variable is not passed; none where it is.
pub fn reason_dropped(name: &OsStr) -> Option<&'static str> {
    let matches = |pattern: &str, name: &[u8]| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => name.ends_with(end.as_bytes()),
        (_, Some(start)) => name.starts_with(start.as_bytes()),
        _ => name == pattern.as_bytes(),
    };
    let lower = name.as_bytes().to_ascii_lowercase();
    let found = DROPPED.iter().find(|dropped| {
        let name = if dropped.any_case { lower.as_slice() } else { name.as_bytes() };
        dropped.names.iter().any(|pattern| matches(pattern, name))
    });
    found.map(|dropped| dropped.reason.as_str())
}

fn fill(text: &str, proxy: Option<SocketAddr>, home: &Path, connector: Option<&Path>) -> OsString {
    let mut text = text.to_owned();
    if let Some(proxy) = proxy {
        text = text.replace("{proxy_url}", &format!("http://{proxy}"));
        text = text.replace("{proxy_host}", &proxy.ip().to_string());
        text = text.replace("{proxy_port}", &proxy.port().to_string());
    }
    // Paths need not be UTF-8, so they are put in as bytes.
    let program = connector.map(proxy_command_word).unwrap_or_default();
    let with_program = |piece: &str| piece.split("{program}").map(OsStr::new).collect::<Vec<_>>().join(&*program);
    let pieces: Vec<OsString> = text.split("{home}").map(with_program).collect();
    pieces.join(home.as_os_str())
}

/// A path as the first word of ssh's ProxyCommand, which itself stands within single quotes: a shell takes those away, ssh puts
/// in what follows a `%` (ssh_config(5), TOKENS), and another shell reads what is left.
fn proxy_command_word(path: &Path) -> OsString {
    let bytes = path.as_os_str().as_bytes();
    if bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"/._+-".contains(byte)) {
        return path.as_os_str().to_owned();
    }
    const QUOTE: &[u8] = br"'\''";
    let mut word = QUOTE.to_vec();
    for byte in bytes {
        match byte {
            // Out of the inner quotes, a quote that the inner shell sees escaped, and in again.
            b'\'' => word.extend([QUOTE, br"\", QUOTE, QUOTE].concat()),
            b'%' => word.extend(b"%%"),
            other => word.push(*other),
        }
    }
    word.extend(QUOTE);
    OsString::from_vec(word)
}

fn joined(theirs: &OsStr, ours: &OsStr) -> OsString {
    let mut value = theirs.to_owned();
    value.push(" ");
    value.push(ours);
    value
}

#[cfg(test)]
#[path = "environment_tests.rs"]
mod tests;
