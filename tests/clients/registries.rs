//! What the registries of the closed world serve, as pip, npm, Cargo and apt ask for it: one package each; and a Git
//! repository.

use sha2::{Digest, Sha256};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use world::{Response, origin};

/// The content for the admitted names: the packages, `project.git`, and what [`origin::standard`] has.
pub fn content() -> origin::Content {
    let files = tempfile::tempdir().expect("a directory");
    let at = |path: &str| {
        let path = files.path().join(path);
        std::fs::create_dir_all(path.parent().expect("below the root")).expect("mkdir");
        path
    };
    let write = |path: &str, text: &str| std::fs::write(at(path), text).expect("write");
    world::repository(files.path()).expect("a repository");
    wheel(&at("closed_world-1.0-py3-none-any.whl"));
    let link = "https://files.pythonhosted.org/closed_world-1.0-py3-none-any.whl";
    write("simple/closed-world/index.html", &format!("<a href=\"{link}\">closed_world-1.0-py3-none-any.whl</a>\n"));

    write("package/package.json", r#"{"name":"closed-world","version":"1.0.0","main":"index.js"}"#);
    write("package/index.js", "console.log('required')\n");
    pack(files.path(), "package", "closed-world-1.0.0.tgz");
    let document = r#"{"name":"closed-world","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"closed-world",
        "version":"1.0.0","dist":{"tarball":"https://registry.npmjs.org/closed-world-1.0.0.tgz"}}}}"#;
    write("closed-world", document);

    let manifest = "[package]\nname = \"closed-world\"\nversion = \"1.0.0\"\nedition = \"2021\"\n";
    write("closed-world-1.0.0/Cargo.toml", manifest);
    write("closed-world-1.0.0/src/lib.rs", "");
    let download = "crates/closed-world/1.0.0/download";
    at(download);
    pack(files.path(), "closed-world-1.0.0", download);
    write("config.json", r#"{"dl":"https://static.crates.io/crates","api":"https://crates.io"}"#);
    let digest = digest(&std::fs::read(files.path().join(download)).expect("the crate"));
    let version = serde_json::json!({ "name": "closed-world", "vers": "1.0.0", "deps": [], "cksum": digest,
        "features": {}, "yanked": false });
    write("cl/os/closed-world", &format!("{version}\n"));

    // apt looks at a package's size and digest, and leaves what is in it to dpkg.
    let package = "a package of the closed world\n";
    write("debian/closed-world_1.0_all.deb", package);
    write(
        "debian/Packages",
        &format!(
            "Package: closed-world\nVersion: 1.0\nArchitecture: all\nMaintainer: World <world@localhost>\n\
             Filename: ./closed-world_1.0_all.deb\nSize: {}\nSHA256: {}\nDescription: a package\n",
            package.len(),
            self::digest(package.as_bytes())
        ),
    );

    let (directory, rest) = (origin::directory(files.path()).expect("files"), origin::standard());
    Arc::new(move |request| {
        let mut asked = request.clone();
        // apt joins what a list says to where the list is.
        asked.target = asked.target.replace("/./", "/");
        // An index page is a file among its directory's.
        if request.path() != "/" && request.path().ends_with('/') {
            asked.target = format!("{}index.html", request.path());
        }
        match directory(&asked) {
            found if found.status != 200 => rest(request),
            found if asked.path().ends_with(".html") => {
                Response { fields: Vec::new(), ..found }.with("content-type", "text/html")
            }
            found => found,
        }
    })
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn pack(below: &Path, directory: &str, archive: &str) {
    let status = Command::new("tar").args(["-czf", archive, directory]).current_dir(below).status();
    assert!(status.expect("tar").success(), "{archive}");
}

fn wheel(path: &Path) {
    let make = format!(
        "import zipfile\n\
         with zipfile.ZipFile({:?}, 'w') as wheel:\n\
         \x20   wheel.writestr('closed_world.py', 'print(\"imported\")\\n')\n\
         \x20   info = 'closed_world-1.0.dist-info/'\n\
         \x20   wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: closed-world\\nVersion: 1.0\\n')\n\
         \x20   wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
         \x20   wheel.writestr(info + 'RECORD', '')\n",
        path.display().to_string()
    );
    assert!(Command::new("/usr/bin/python3").args(["-c", &make]).status().expect("python3").success());
}
