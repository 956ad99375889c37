//! The subcommands that need nothing but a policy: `policy show`, `policy check`, `allowlist check`.

use super::allowlist::Verdict;
use super::authority::Authority;
use super::effective::Policy;
use super::error::{PolicyError, Unholdable};
use super::layer::Layer;
use super::values::PolicyArg;
use std::io::{self, Write};
use std::path::Path;

/// Why `policy check` refuses a file.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// It is no policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Its postures can't be held together.
    #[error("policy file {file}: {cause}")]
    Unholdable {
        /// The file's name as given.
        file: String,
        /// Why.
        #[source]
        cause: Unholdable,
    },
    /// The answer can't be written.
    #[error("write to standard output: {0}")]
    Write(#[from] io::Error),
}

/// The effective policy as a complete TOML file, with its level and its digest as comments. It loads back to the same
/// digest.
pub fn policy_show(policy: &Policy) -> String {
    format!("# level {}, digest {}\n{}", policy.level_name(), policy.digest(), policy.to_toml())
}

/// Loads a policy file and says in one line what it is.
pub fn policy_check(file: &Path, out: &mut impl Write) -> Result<(), CheckError> {
    let policy = Policy::load(&PolicyArg::File(file.to_owned()), &Layer::default())?;
    let holdable = policy.check_holdable();
    holdable.map_err(|cause| CheckError::Unholdable { file: file.display().to_string(), cause })?;
    writeln!(out, "{}: level {}, digest {}", file.display(), policy.level_name(), policy.digest())?;
    Ok(())
}

/// Judges each `HOST[:PORT]` (443 without a port) and prints a line for it: the verdict, what was judged, and the
/// entry that admits it or the rule and the reason of the refusal. Gives whether all are admitted.
pub fn allowlist_check(policy: &Policy, targets: &[String], out: &mut impl Write) -> io::Result<bool> {
    let allowlist = policy.effective_allowlist();
    let mut all = true;
    for target in targets {
        let (admitted, line) = match Authority::parse_with_default(target.as_bytes(), 443) {
            Err(fault) => {
                let reason = fault.reason();
                (false, format!("\"{}\" rule=malformed reason={reason} ({fault})", target.escape_default()))
            }
            Ok(authority) => match allowlist.as_ref().map(|list| list.judge(&authority)) {
                None => (true, format!("{authority} (the network is open)")),
                Some(Verdict::Admitted { entry }) => (true, format!("{authority} entry={entry}")),
                Some(Verdict::Refused { rule, reason }) => (false, format!("{authority} rule={rule} reason={reason}")),
            },
        };
        all &= admitted;
        writeln!(out, "{} {line}", if admitted { "admitted" } else { "refused" })?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Level;

    fn check(level: Level, targets: &[&str]) -> (bool, String) {
        let targets: Vec<String> = targets.iter().map(|text| text.to_string()).collect();
        let mut out = Vec::new();
        let all = allowlist_check(&Policy::of_level(level), &targets, &mut out).unwrap();
        (all, String::from_utf8(out).unwrap())
    }

    #[test]
    fn every_verdict_has_its_line() {
        let targets = ["PyPI.org.", "x.ubuntu.com:80", "pypi.org:22", "evil.test", "evil.test\n@pypi.org"];
        let (all, lines) = check(Level::NistHigh, &targets);
        assert!(!all);
        assert_eq!(
            lines,
            "admitted pypi.org:443 entry=pypi.org\n\
             admitted x.ubuntu.com:80 entry=*.ubuntu.com\n\
             refused pypi.org:22 rule=port reason=port_not_allowed\n\
             refused evil.test:443 rule=default-deny reason=not_allowed\n\
             refused \"evil.test\\n@pypi.org\" rule=malformed reason=control_byte (it holds a control byte)\n"
        );
    }

    #[test]
    fn the_status_is_that_of_the_worst() {
        assert!(check(Level::NistHigh, &["pypi.org", "crates.io"]).0);
        assert!(!check(Level::NistHigh, &["pypi.org", "evil.test", "crates.io"]).0);
        assert!(!check(Level::Locked, &["pypi.org"]).0);
        assert_eq!(
            check(Level::Control, &["evil.test"]),
            (true, "admitted evil.test:443 (the network is open)\n".into())
        );
        assert!(!check(Level::Control, &["127.1"]).0);
    }

    #[test]
    fn check_names_the_file_and_the_fault() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p.toml");
        let seen = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let mut out = Vec::new();
            let result = policy_check(&file, &mut out).map_err(|fault| fault.to_string());
            result.map(|()| String::from_utf8(out).unwrap()).unwrap_or_else(|fault| fault)
        };
        let name = file.display();
        let digest = Policy::of_level(Level::NistHigh).digest();
        assert_eq!(seen("extends = \"nist-high\"\n"), format!("{name}: level nist-high, digest {digest}\n"));
        assert!(
            seen("extends = \"nist-high\"\nprivilege = \"open\"\n")
                .starts_with(&format!("policy file {name}: network restricted can't be held"))
        );
        assert!(seen("\nnetwork = \"shut\"\n").starts_with(&format!("{name}:2: ")));
        let missing = policy_check(&dir.path().join("absent.toml"), &mut Vec::new()).unwrap_err();
        assert!(missing.to_string().contains("absent.toml: No such file"), "{missing}");
    }
}
