//! What is worked on: an archive, C files, a crate, and what the registry and the host of repositories serve.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use world::origin::{Content, directory, standard};

/// Where it lies in the box.
pub const INPUTS: &str = "/srv/work";

/// How much of each there is.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Files in the archive and in the repository.
    pub files: usize,
    /// Files of C.
    pub units: usize,
    /// Modules of the crate.
    pub modules: usize,
    /// Packages of the registry.
    pub packages: usize,
}

/// The files of a package.
pub const OF_PACKAGE: usize = 20;

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("below a root")).expect("mkdir");
    std::fs::write(path, text).expect("write");
}

fn run(below: &Path, program: &str, arguments: &[&str]) {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(below);
    // What the machine's user has set must not decide what is measured.
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.output().expect(program);
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// So many files of about 2 KiB, a hundred in a directory.
fn tree(below: &Path, files: usize) {
    for number in 0..files {
        let text = format!("line of file {number}\n").repeat(100);
        write(&below.join(format!("tree/{:03}/{number}.txt", number / 100)), &text);
    }
}

/// Writes what is read from the disk.
pub fn put(sizes: Sizes) {
    let root = Path::new(INPUTS);
    tree(root, sizes.files);
    run(root, "tar", &["-cf", "tree.tar", "tree"]);
    for number in 0..sizes.units {
        let text = format!(
            "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
             int unit_{number}(const char *text) {{ char *copy = strdup(text); int n = printf(\"%s\", copy); free(copy); return n; }}\n"
        );
        write(&root.join(format!("units/{number}.c")), &text);
    }
    write(
        &root.join("units/Makefile"),
        "OBJECTS := $(patsubst %.c,%.o,$(wildcard *.c))\nall: $(OBJECTS)\n%.o: %.c\n\tcc -O1 -c -o $@ $<\n",
    );
    write(&root.join("crate/Cargo.toml"), "[package]\nname = \"work\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    let mut main = String::new();
    for number in 0..sizes.modules {
        let module = "use std::collections::BTreeMap;\n\
             pub fn count(text: &str) -> BTreeMap<String, usize> {\n    let mut found = BTreeMap::new();\n\
             \x20   text.split(' ').for_each(|word| *found.entry(word.to_owned()).or_default() += 1);\n    found\n}\n";
        write(&root.join(format!("crate/src/m{number}.rs")), module);
        writeln!(main, "mod m{number};").expect("a string");
    }
    main.push_str("fn main() {\n");
    for number in 0..sizes.modules {
        writeln!(main, "    println!(\"{{:?}}\", m{number}::count(\"one two one\"));").expect("a string");
    }
    main.push_str("}\n");
    write(&root.join("crate/src/main.rs"), &main);
    let packages = (0..sizes.packages).map(|number| format!("\"work-{number}\": \"1.0.0\""));
    let dependencies = packages.collect::<Vec<_>>().join(",");
    let own = format!("\"name\": \"work\", \"version\": \"1.0.0\", \"dependencies\": {{{dependencies}}}");
    write(&root.join("npm/package.json"), &format!("{{{own}}}"));
    let locked = (0..sizes.packages).map(|number| {
        format!(
            ", \"node_modules/work-{number}\": {{\"version\": \"1.0.0\", \
             \"resolved\": \"https://registry.npmjs.org/work-{number}-1.0.0.tgz\"}}"
        )
    });
    let lock = format!(
        "{{\"name\": \"work\", \"version\": \"1.0.0\", \"lockfileVersion\": 3, \"packages\": {{\"\": {{{own}}}{}}}}}",
        locked.collect::<String>()
    );
    write(&root.join("npm/package-lock.json"), &lock);
}

/// What is served.
pub fn content(sizes: Sizes) -> Content {
    let files = tempfile::tempdir().expect("a directory");
    let root = files.path();
    for number in 0..sizes.packages {
        let package = root.join("package");
        write(&package.join("package.json"), &format!("{{\"name\": \"work-{number}\", \"version\": \"1.0.0\"}}"));
        for file in 1..OF_PACKAGE {
            write(&package.join(format!("lib/{file}.js")), &format!("module.exports = {file}\n").repeat(50));
        }
        run(root, "tar", &["-czf", &format!("work-{number}-1.0.0.tgz"), "package"]);
        std::fs::remove_dir_all(package).expect("rm");
    }
    tree(root, sizes.files / 10);
    let tree = root.join("tree");
    run(&tree, "git", &["init", "-q", "-b", "main"]);
    run(&tree, "git", &["add", "."]);
    run(&tree, "git", &["-c", "user.name=World", "-c", "user.email=world@localhost", "commit", "-q", "-m", "Begin"]);
    run(root, "git", &["clone", "-q", "--bare", "tree", "project.git"]);
    let bare = root.join("project.git");
    // One pack, which is asked for at once (gitprotocol-http(5), "dumb clients").
    run(&bare, "git", &["repack", "-a", "-d", "-q"]);
    run(&bare, "git", &["update-server-info"]);
    std::fs::remove_dir_all(tree).expect("rm");
    let (files, rest) = (directory(root).expect("files"), standard());
    Arc::new(move |request| match files(request) {
        found if found.status == 200 => found,
        _ => rest(request),
    })
}
