//! Probes in files: those that are built in, and those of a directory that the caller names.

use super::spec::Spec;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// Probes could not be had from a file. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// The directory or a file in it cannot be read.
    #[error("probes: read {path}: {cause}", path = path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// The cause.
        cause: std::io::Error,
    },
    /// There is no suite in the directory.
    #[error("probes: {path} holds no suite; accepted: a directory with files that end in .toml", path = path.display())]
    None {
        /// The directory.
        path: PathBuf,
    },
    /// A file says something else than probes.
    #[error("probes: {path}:{line}: {fault}", path = path.display())]
    Fault {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong, and what is accepted.
        fault: String,
    },
    /// A list of probes has no outcome.
    #[error("--list has no outcomes; accepted with it: --format table, --format json")]
    ListForm,
    /// What is asked for is not there.
    #[error("{what} {text:?} names no probe; accepted: an id of `ringfence probe --list`{glob}")]
    NoProbe {
        /// The flag.
        what: &'static str,
        /// Its value.
        text: String,
        /// What else it may be.
        glob: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    probe: Vec<Spanned<Spec>>,
}

const FILES: [(&str, &str); 3] = [
    ("probes/network.toml", include_str!("../../probes/network.toml")),
    ("probes/filesystem.toml", include_str!("../../probes/filesystem.toml")),
    ("probes/privilege.toml", include_str!("../../probes/privilege.toml")),
];

/// All probes that are built in.
pub fn built_in() -> Result<Vec<Spec>, SuiteError> {
    let mut suite = Suite::default();
    for (name, text) in FILES {
        suite.add(Path::new(name), text)?;
    }
    Ok(suite.specs)
}

/// Those that are built in, and those of every `*.toml` in `directory`, in the order of the files' names.
pub fn with_directory(directory: &Path) -> Result<Vec<Spec>, SuiteError> {
    let mut suite = Suite::default();
    for (name, text) in FILES {
        suite.add(Path::new(name), text)?;
    }
    let read = |path: &Path| {
        let path = path.to_owned();
        move |cause| SuiteError::Read { path, cause }
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(read(directory))? {
        let path = entry.map_err(read(directory))?.path();
        files.extend(Some(path).filter(|path| path.extension().is_some_and(|extension| extension == "toml")));
    }
    if files.is_empty() {
        return Err(SuiteError::None { path: directory.to_owned() });
    }
    files.sort();
    for file in files {
        suite.add(&file, &std::fs::read_to_string(&file).map_err(read(&file))?)?;
    }
    Ok(suite.specs)
}

#[derive(Default)]
struct Suite {
    specs: Vec<Spec>,
    /// Where each id stands.
    places: BTreeMap<String, PathBuf>,
}

impl Suite {
    fn add(&mut self, path: &Path, text: &str) -> Result<(), SuiteError> {
        let at = |start: usize, fault: String| {
            let before = &text.as_bytes()[..start.min(text.len())];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            SuiteError::Fault { path: path.to_owned(), line, fault: fault.trim_end().replace('\n', ", ") }
        };
        let file: File = toml::from_str(text)
            .map_err(|fault| at(fault.span().map_or(0, |span| span.start), fault.message().to_owned()))?;
        for spec in file.probe {
            let start = spec.span().start;
            let spec = spec.into_inner();
            spec.check().map_err(|fault| at(start, fault))?;
            if let Some(other) = self.places.insert(spec.id.clone(), path.to_owned()) {
                let fault =
                    format!("the id {:?} is taken by a probe of {}; accepted: another", spec.id, other.display());
                return Err(at(start, fault));
            }
            self.specs.push(spec);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = "[[probe]]\nid = \"network.direct.own\"\ntitle = \"x\"\nrestrictions = [\"direct-egress\"]\n\
                         class = \"direct\"\noperation = { tcp = [\"1.2.3.4:9\"] }\nexpect = [\"ECONNREFUSED\"]\nwhy = \"x\"\n";

    fn load(files: &[(&str, &str)]) -> Result<Vec<Spec>, String> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        with_directory(directory.path())
            .map_err(|error| error.to_string().replace(&directory.path().display().to_string(), "DIR"))
    }

    #[test]
    fn the_built_in_probes_are_well_formed() {
        let all = built_in().unwrap();
        assert!(all.len() > 60 && all.iter().all(|spec| spec.why.len() > 20));
    }

    #[test]
    fn a_directory_is_added_to_what_is_built_in() {
        let count = built_in().unwrap().len();
        let second = SOUND.replace("direct.own", "direct.other");
        let all = load(&[("b.toml", SOUND), ("a.toml", &second), ("c.txt", "no suite")]).unwrap();
        let own: Vec<&str> = all[count..].iter().map(|spec| spec.id.as_str()).collect();
        assert_eq!(own, ["network.direct.other", "network.direct.own"]);
    }

    #[test]
    fn each_fault_is_one_line_with_file_line_value_and_what_is_accepted() {
        let with = |from: &str, to: &str| SOUND.replace(from, to);
        let cases = [
            (with("\"1.2.3.4:9\"", "\"1.2.3.4\""), "DIR/a.toml:6: operation tcp: invalid socket address syntax"),
            (
                with("{ tcp = [\"1.2.3.4:9\"] }", "\"tpc\""),
                "DIR/a.toml:6: \"tpc\" is no operation; accepted: create-in-",
            ),
            (with("{ tcp = [\"1.2.3.4:9\"] }", "7"), "DIR/a.toml:6: an operation is a name, or a table of one name"),
            (
                with("\"direct-egress\"", "\"egress\""),
                "DIR/a.toml:4: unknown variant `egress`, expected one of `egress-allowl",
            ),
            (with("\"direct\"\n", "\"indirect\"\n"), "DIR/a.toml:5: unknown variant `indirect`"),
            (
                with("network.direct.own", "own"),
                "DIR/a.toml:1: \"own\" is no id for it; accepted: network.direct.SUBJECT",
            ),
            (with("title = \"x\"", "title = \"\""), "DIR/a.toml:1: \"\" is no title; accepted: 1 to 60 characters"),
            (with("[\"ECONNREFUSED\"]", "[]"), "DIR/a.toml:1: expect is empty; accepted: the words that may be seen"),
            (with("[\"direct-egress\"]", "[]"), "DIR/a.toml:1: restrictions is empty; accepted: one or more"),
            (
                with("title = \"x\"", "tilte = \"x\""),
                "DIR/a.toml:3: unknown field `tilte`, expected one of `id`, `title`",
            ),
            (
                with("network.direct.own", "network.direct.tcp"),
                "DIR/a.toml:1: the id \"network.direct.tcp\" is taken by a probe of probes/network.toml",
            ),
            (
                format!("{SOUND}\n{SOUND}"),
                "DIR/a.toml:10: the id \"network.direct.own\" is taken by a probe of DIR/a.toml",
            ),
            ("probe = 1".to_owned(), "DIR/a.toml:1: invalid type: integer `1`, expected a sequence"),
        ];
        for (text, expected) in cases {
            let fault = load(&[("a.toml", &text)]).unwrap_err();
            assert!(fault.contains(expected) && !fault.contains('\n'), "{fault}\n{expected}");
        }
        assert!(load(&[("a.txt", SOUND)]).unwrap_err().contains("holds no suite; accepted: a directory"));
        assert!(with_directory(Path::new("/none")).unwrap_err().to_string().starts_with("probes: read /none: "));
    }
}
