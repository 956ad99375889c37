//! The command's account: which ids, which home, and the account files as the command shall see them.
//!
//! The databases are read from files only (no NSS): a name that a directory service would know is unknown here.

use nix::unistd::{Gid, Uid, getegid, geteuid};
use std::path::{Path, PathBuf};

/// The first uid given to a dedicated account; later ones are taken when it is in use.
pub const FIRST_UID: u32 = 10001;
/// The last uid given to a dedicated account.
pub const LAST_UID: u32 = 10999;
/// The dedicated account's name.
pub const NAME: &str = "agent";

/// Who the command runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The login name, for USER and LOGNAME.
    pub name: String,
    /// All four uids.
    pub uid: Uid,
    /// All four gids.
    pub gid: Gid,
    /// HOME.
    pub home: PathBuf,
    /// SHELL.
    pub shell: PathBuf,
    /// Whether the uid is the run's own, so that whatever has it is the run's.
    pub dedicated: bool,
    /// Whether the image's databases have an entry for it, whose HOME is then used as it is.
    pub of_image: bool,
}

/// The account databases of the image, as bytes; `None` where the file does not exist.
#[derive(Debug, Clone, Default)]
pub struct Databases {
    /// /etc/passwd.
    pub passwd: Option<Vec<u8>>,
    /// /etc/group.
    pub group: Option<Vec<u8>>,
    /// /etc/shadow.
    pub shadow: Option<Vec<u8>>,
    /// /etc/gshadow.
    pub gshadow: Option<Vec<u8>>,
}

/// Why no identity could be settled.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AccountError {
    /// A file could not be read.
    #[error("read {path}: {cause}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: String,
    },
    /// `--user NAME` names nobody.
    #[error("user {name:?}: no such entry in /etc/passwd; accepted: an entry's name, or UID[:GID]")]
    Unknown {
        /// The name.
        name: String,
    },
    /// `--user` has a form that is none.
    #[error("user {text:?}: accepted: an entry's name, or UID[:GID] with numbers from 1 to 4294967294")]
    Malformed {
        /// The text.
        text: String,
    },
    /// `--user` names the superuser.
    #[error("user {text:?} is uid or gid 0; privilege above open needs an unprivileged user")]
    Superuser {
        /// The text.
        text: String,
    },
    /// All uids of the range are in use.
    #[error("no free uid from {FIRST_UID} to {LAST_UID} for the command's account")]
    Exhausted,
}

/// A database larger than this is refused: it is no account file.
const DATABASE_LIMIT: u64 = 32 << 20;

impl Databases {
    /// Reads the four files. Who is not root may not read the shadow files, nor mount over them.
    pub fn read() -> Result<Databases, AccountError> {
        let read = |path: &str| {
            let fail = |cause: String| AccountError::Read { path: path.into(), cause };
            match std::fs::metadata(path) {
                Ok(meta) if meta.len() > DATABASE_LIMIT => {
                    return Err(fail(format!("larger than {DATABASE_LIMIT} bytes")));
                }
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(fail(e.to_string())),
            }
            std::fs::read(path).map(Some).map_err(|e| fail(e.to_string()))
        };
        let shadow = |path: &str| if geteuid().is_root() { read(path) } else { Ok(None) };
        Ok(Databases {
            passwd: read("/etc/passwd")?,
            group: read("/etc/group")?,
            shadow: shadow("/etc/shadow")?,
            gshadow: shadow("/etc/gshadow")?,
        })
    }

    fn entries(content: &Option<Vec<u8>>) -> impl Iterator<Item = Vec<&[u8]>> {
        content.as_deref().unwrap_or_default().split(|b| *b == b'\n').map(|line| line.split(|b| *b == b':').collect())
    }

    fn passwd_entry(&self, matches: impl Fn(&str, u32) -> bool) -> Option<(Identity, u32)> {
        Self::entries(&self.passwd).find_map(|fields| {
            let text = |n: usize| fields.get(n).and_then(|f| std::str::from_utf8(f).ok());
            let (name, uid, gid) = (text(0)?, text(2)?.parse().ok()?, text(3)?.parse().ok()?);
            let home = PathBuf::from(text(5).filter(|h| h.starts_with('/')).unwrap_or("/"));
            let shell = PathBuf::from(text(6).filter(|s| s.starts_with('/')).unwrap_or("/bin/sh"));
            let identity = Identity {
                name: name.into(),
                uid: Uid::from_raw(uid),
                gid: Gid::from_raw(gid),
                home,
                shell,
                dedicated: false,
                of_image: true,
            };
            (!name.is_empty() && matches(name, uid)).then_some((identity, uid))
        })
    }

    /// The homes of people: root's and those below /home. System accounts have system directories as theirs.
    pub fn homes(&self) -> Vec<PathBuf> {
        let named =
            Self::entries(&self.passwd).filter_map(|f| Some(PathBuf::from(std::str::from_utf8(f.get(5)?).ok()?)));
        let mut homes: Vec<PathBuf> =
            named.filter(|h| h.starts_with("/home") && h.as_path() != Path::new("/home")).collect();
        homes.push("/root".into());
        homes
    }

    /// Whether any entry of the databases has this number as a uid or gid.
    pub fn knows_number(&self, id: u32) -> bool {
        let number = |fields: &[&[u8]]| fields.get(2).and_then(|f| std::str::from_utf8(f).ok()?.parse::<u32>().ok());
        Self::entries(&self.passwd).chain(Self::entries(&self.group)).any(|f| number(&f) == Some(id))
    }

    fn knows_name(&self, name: &str) -> bool {
        Self::entries(&self.passwd).chain(Self::entries(&self.group)).any(|f| f.first() == Some(&name.as_bytes()))
    }

    /// The dedicated account with the given number.
    pub fn dedicated(&self, uid: u32) -> Identity {
        let first_is_free = uid == FIRST_UID && !self.knows_name(NAME);
        let name = if first_is_free || !self.knows_name(NAME) { NAME.to_owned() } else { format!("{NAME}-{uid}") };
        // HOME is a real directory, so runs side by side need one each.
        let home = if first_is_free { format!("/home/{NAME}") } else { format!("/home/{NAME}-{uid}") };
        Identity {
            name,
            uid: Uid::from_raw(uid),
            gid: Gid::from_raw(uid),
            home: home.into(),
            shell: shell_of_image(),
            dedicated: true,
            of_image: false,
        }
    }

    /// The caller's own identity: its ids, its HOME as the environment has it, and its name where an entry has one.
    pub fn callers(&self) -> Identity {
        let (uid, gid) = (geteuid(), getegid());
        let known = self.passwd_entry(|_, number| number == uid.as_raw()).map(|(identity, _)| identity);
        let named_home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let home = named_home.or_else(|| known.as_ref().map(|i| i.home.clone())).unwrap_or_else(|| "/".into());
        Identity {
            name: known.as_ref().map_or_else(|| uid.to_string(), |i| i.name.clone()),
            uid,
            gid,
            home,
            shell: known.map_or_else(shell_of_image, |i| i.shell),
            dedicated: false,
            of_image: true,
        }
    }

    /// The identity that `--user NAME|UID[:GID]` asks for.
    pub fn named(&self, text: &str) -> Result<Identity, AccountError> {
        let malformed = || AccountError::Malformed { text: text.into() };
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let number =
            |s: &str| s.parse::<u32>().ok().filter(|n| *n != u32::MAX && s.bytes().all(|b| b.is_ascii_digit()));
        let numeric = !user.is_empty() && user.bytes().all(|b| b.is_ascii_digit() || b == b'-' || b == b'+');
        let mut identity = if numeric {
            let uid = number(user).ok_or_else(malformed)?;
            match self.passwd_entry(|_, u| u == uid) {
                Some((identity, _)) => identity,
                None => {
                    let mut identity = self.dedicated(uid);
                    identity.home = format!("/home/{NAME}-{uid}").into();
                    // The number is the caller's choice, so others may have processes of it.
                    identity.dedicated = false;
                    identity
                }
            }
        } else {
            if user.is_empty() || group.is_some() {
                return Err(malformed());
            }
            self.passwd_entry(|name, _| name == user).ok_or_else(|| AccountError::Unknown { name: user.into() })?.0
        };
        if let Some(group) = group {
            identity.gid = Gid::from_raw(number(group).ok_or_else(malformed)?);
        }
        if identity.uid.is_root() || identity.gid.as_raw() == 0 {
            return Err(AccountError::Superuser { text: text.into() });
        }
        Ok(identity)
    }

    /// The account files as the command shall see them: the account is known, root's password is locked, and the account
    /// is a member of no group but its own, so that no group's password or set-gid program adds one.
    pub fn rewritten(&self, who: &Identity) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        let (uid, gid) = (who.uid.as_raw(), who.gid.as_raw());
        let has_user = self.passwd_entry(|name, n| name == who.name && n == uid).is_some();
        let has_group = Self::entries(&self.group).any(|f| f.get(2) == Some(&gid.to_string().as_bytes()));
        if let Some(content) = &self.passwd {
            let entry = format!("{}:x:{uid}:{gid}::{}:{}", who.name, who.home.display(), who.shell.display());
            files.push(("/etc/passwd".into(), with_line(content, (!has_user).then_some(entry))));
        }
        if let Some(content) = &self.group {
            let entry = format!("{}:x:{gid}:", who.name);
            files.push((
                "/etc/group".into(),
                with_line(&without_member(content, &who.name), (!has_group).then_some(entry)),
            ));
        }
        if let Some(content) = &self.gshadow {
            files.push(("/etc/gshadow".into(), without_member(content, &who.name)));
        }
        if let Some(content) = &self.shadow {
            let entry = format!("{}:!:19000:0:99999:7:::", who.name);
            files.push(("/etc/shadow".into(), with_line(&with_root_locked(content), (!has_user).then_some(entry))));
        }
        files
    }
}

fn shell_of_image() -> PathBuf {
    ["/bin/bash", "/bin/sh"].into_iter().map(PathBuf::from).find(|p| p.exists()).unwrap_or_else(|| "/bin/sh".into())
}

fn with_line(content: &[u8], line: Option<String>) -> Vec<u8> {
    let mut out = content.to_vec();
    if let Some(line) = line {
        if out.last().is_some_and(|b| *b != b'\n') {
            out.push(b'\n');
        }
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
    out
}

/// `!` before the hash is what passwd(1) `-l` writes: no password matches it.
fn with_root_locked(content: &[u8]) -> Vec<u8> {
    map_lines(content, |fields| {
        if fields[0] == b"root" && fields.len() > 1 && !fields[1].starts_with(b"!") {
            fields[1].insert(0, b'!');
        }
    })
}

fn without_member(content: &[u8], name: &str) -> Vec<u8> {
    map_lines(content, |fields| {
        if fields.len() > 3 {
            let last = fields.len() - 1;
            let members: Vec<&[u8]> = fields[last].split(|b| *b == b',').filter(|m| *m != name.as_bytes()).collect();
            fields[last] = members.join(&b',');
        }
    })
}

fn map_lines(content: &[u8], edit: impl Fn(&mut Vec<Vec<u8>>)) -> Vec<u8> {
    let lines: Vec<Vec<u8>> = content
        .split(|b| *b == b'\n')
        .map(|line| {
            let mut fields: Vec<Vec<u8>> = line.split(|b| *b == b':').map(<[u8]>::to_vec).collect();
            edit(&mut fields);
            fields.join(&b':')
        })
        .collect();
    lines.join(&b'\n')
}

/// The files by which sudo and doas let ordinary users become root, and what stands over them: no entry but root's own.
pub const ESCALATION_FILES: [(&str, &[u8]); 2] =
    [("/etc/sudoers", b"root ALL=(ALL:ALL) ALL\n"), ("/etc/doas.conf", b"")];

/// Directories whose files add to [`ESCALATION_FILES`].
pub const ESCALATION_DIRECTORIES: [&str; 2] = ["/etc/sudoers.d", "/etc/doas.d"];

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Databases {
        Databases {
            passwd: Some(b"root:x:0:0:root:/root:/bin/bash\nbroken\ndev:x:1000:1000::/home/dev:/bin/zsh\n".to_vec()),
            group: Some(b"root:x:0:\nsudo:x:27:dev,other\ndev:x:1000:".to_vec()),
            shadow: Some(b"root:$6$hash:19000:0:99999:7:::\ndev:!:1::::::\n".to_vec()),
            gshadow: Some(b"sudo:*::dev\n".to_vec()),
        }
    }

    fn file(files: &[(PathBuf, Vec<u8>)], name: &str) -> String {
        String::from_utf8(files.iter().find(|(p, _)| p == Path::new(name)).unwrap().1.clone()).unwrap()
    }

    #[test]
    fn the_dedicated_account_is_added_and_root_is_locked() {
        let databases = sample();
        let files = databases.rewritten(&databases.dedicated(FIRST_UID));
        assert!(file(&files, "/etc/passwd").ends_with("\nagent:x:10001:10001::/home/agent:/bin/bash\n"));
        assert!(file(&files, "/etc/group").ends_with("dev:x:1000:\nagent:x:10001:\n"));
        assert!(file(&files, "/etc/shadow").starts_with("root:!$6$hash:"));
        assert!(file(&files, "/etc/shadow").contains("\nagent:!:"));
    }

    #[test]
    fn an_existing_account_loses_its_memberships() {
        let databases = sample();
        let dev = databases.named("dev").unwrap();
        assert_eq!((dev.uid.as_raw(), dev.home.as_path(), dev.dedicated), (1000, Path::new("/home/dev"), false));
        let files = databases.rewritten(&dev);
        assert!(file(&files, "/etc/group").contains("sudo:x:27:other\n"));
        assert_eq!(file(&files, "/etc/gshadow"), "sudo:*::\n");
        assert_eq!(file(&files, "/etc/passwd").as_bytes(), databases.passwd.as_deref().unwrap());
    }

    #[test]
    fn numbers_need_no_database() {
        let none = Databases::default();
        let who = none.named("4294967294:7").unwrap();
        assert_eq!((who.uid.as_raw(), who.gid.as_raw()), (4294967294, 7));
        assert_eq!(none.rewritten(&who), []);
        for bad in ["-1", "4294967295", "99999999999", "", "dev:x:", "+5", "1:", "dev:1000"] {
            assert!(matches!(none.named(bad), Err(AccountError::Malformed { .. })), "{bad}");
        }
        assert_eq!(none.named("0"), Err(AccountError::Superuser { text: "0".into() }));
        assert_eq!(sample().named("root"), Err(AccountError::Superuser { text: "root".into() }));
        assert_eq!(none.named("dev"), Err(AccountError::Unknown { name: "dev".into() }));
    }

    proptest::proptest! {
        #[test]
        fn rewriting_keeps_every_other_line(passwd: Vec<u8>) {
            let databases = Databases { passwd: Some(passwd.clone()), ..Databases::default() };
            let files = databases.rewritten(&databases.dedicated(10002));
            proptest::prop_assert!(files[0].1.starts_with(&passwd));
        }
    }
}
