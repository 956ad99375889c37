//! Real clients under `nist-high`, each against a registry of the closed world: they need nothing but what the
//! command is given.

mod common;

use common::Fence;
use std::path::Path;
use std::sync::Arc;
use world::{Internet, Response, World, origin};

const FLAGS: [&str; 2] = ["--policy", "nist-high"];

/// A world whose admitted names serve the files below a directory of the machine.
fn serving(files: &Path) -> Fence {
    let world = World::new().expect("a closed world");
    let directory = origin::directory(files).expect("files");
    // An index page is a file beside its directory's files.
    let content: origin::Content = Arc::new(move |request| {
        let mut asked = request.clone();
        if request.path().ends_with('/') {
            asked.target = format!("{}index.html", request.path());
        }
        let response = directory(&asked);
        if response.status == 200 && asked.path().ends_with(".html") {
            return Response { fields: Vec::new(), ..response }.with("content-type", "text/html");
        }
        response
    });
    let internet = Internet::serving(&world, content).expect("servers outside");
    Fence::of(world, internet)
}

#[test]
fn git_clones_over_https() {
    let files = tempfile::tempdir().expect("a directory");
    world::repository(files.path()).expect("a repository");
    let fence = serving(files.path());
    let ended = fence.run(&FLAGS, "cd /workspace && git clone -q https://github.com/project.git && cat project/README");
    assert_eq!(ended.said.out, "a project of the closed world\n", "{ended}");
    assert!(ended.denials().is_empty(), "{ended}");
}

#[test]
fn pip_installs_from_the_index() {
    let files = tempfile::tempdir().expect("a directory");
    let index = files.path().join("simple/closed-world");
    std::fs::create_dir_all(&index).expect("mkdir");
    let wheel = "closed_world-1.0-py3-none-any.whl";
    let make = format!(
        "import zipfile\n\
         with zipfile.ZipFile({path:?}, 'w') as wheel:\n\
         \x20   wheel.writestr('closed_world.py', 'print(\"imported\")\\n')\n\
         \x20   info = 'closed_world-1.0.dist-info/'\n\
         \x20   wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: closed-world\\nVersion: 1.0\\n')\n\
         \x20   wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
         \x20   wheel.writestr(info + 'RECORD', '')\n",
        path = index.join(wheel).display().to_string()
    );
    let made = std::process::Command::new("/usr/bin/python3").args(["-c", &make]).status().expect("python3");
    assert!(made.success());
    std::fs::write(index.join("index.html"), format!("<a href=\"{wheel}\">{wheel}</a>\n")).expect("write");
    let fence = serving(files.path());
    // The machine's own settings for pip are not the test's.
    let script =
        "export PIP_CONFIG_FILE=/dev/null PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CERT=/etc/ssl/certs/ca-certificates.crt
        /usr/bin/python3 -m pip install -q --no-cache-dir --target /workspace/packages closed-world &&
        PYTHONPATH=/workspace/packages /usr/bin/python3 -c 'import closed_world'";
    let ended = fence.run(&FLAGS, script);
    assert_eq!(ended.said.out, "imported\n", "{ended}");
    assert!(ended.denials().is_empty(), "{ended}");
}

#[test]
fn npm_installs_from_the_registry() {
    let files = tempfile::tempdir().expect("a directory");
    let package = files.path().join("package");
    std::fs::create_dir_all(&package).expect("mkdir");
    let manifest = r#"{"name":"closed-world","version":"1.0.0","main":"index.js"}"#;
    std::fs::write(package.join("package.json"), manifest).expect("write");
    std::fs::write(package.join("index.js"), "console.log('required')\n").expect("write");
    let packed = std::process::Command::new("tar")
        .args(["-czf", "closed-world-1.0.0.tgz", "package"])
        .current_dir(files.path())
        .status();
    assert!(packed.expect("tar").success());
    let document = r#"{"name":"closed-world","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"closed-world",
        "version":"1.0.0","main":"index.js","dist":{"tarball":"https://registry.npmjs.org/closed-world-1.0.0.tgz"}}}}"#;
    std::fs::write(files.path().join("closed-world"), document).expect("write");
    let fence = serving(files.path());
    let script = format!(
        "cd /workspace && export NODE_EXTRA_CA_CERTS={} NPM_CONFIG_GLOBALCONFIG=/dev/null \
         npm_config_registry=https://registry.npmjs.org/
         npm install --no-audit --no-fund closed-world >/tmp/npm.log 2>&1 || cat /tmp/npm.log
         node -e 'require(\"closed-world\")'",
        world::AUTHORITY_FILE
    );
    let ended = fence.run(&FLAGS, &script);
    assert!(ended.said.out.ends_with("required\n"), "{ended}");
}
