//! Clients of several languages, which fetch what they are told to and say what has come of it, and a world that serves them.

use crate::common::{Fence, as_root};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use world::{AUTHORITY_FILE, Internet, Request, World, origin};

/// A box to whose admitted names the servers have a repository, `project.git`, beside the standard content.
pub fn fence() -> Fence {
    let files = tempfile::tempdir().expect("a directory");
    world::repository(files.path()).expect("a repository");
    let (repository, rest) = (origin::directory(files.path()).expect("files"), origin::standard());
    let content: origin::Content =
        Arc::new(move |request: &Request| match request.path().starts_with("/project.git/") {
            true => repository(request),
            false => rest(request),
        });
    let world = World::new().expect("a closed world");
    let internet = Internet::serving(&world, content).expect("servers outside");
    Fence::of(world, internet)
}

/// Puts the clients of Go, Java, Python and Node there, and who is trusted by Java's.
pub fn install(fence: &Fence) {
    let built = tempfile::tempdir().expect("a directory");
    // Static, and with the resolver of Go's own.
    let go = built.path().join("fetch-go");
    compile(Command::new("go").args(["build", "-o"]).arg(&go).arg(fixture("fetch.go")).env("CGO_ENABLED", "0"));
    compile(Command::new("javac").arg("-d").arg(built.path()).arg(fixture("Fetch.java")));
    fence.world.install(&go, "/usr/local/bin/fetch-go");
    for class in ["Fetch.class", "Fetch$Client.class"] {
        fence.world.install(&built.path().join(class), &format!("/usr/local/lib/java/{class}"));
    }
    for script in ["fetch.py", "fetch.mjs"] {
        fence.world.install(&fixture(script), &format!("/usr/local/lib/{script}"));
    }
    as_root(
        fence,
        &format!(
            "keytool -importcert -noprompt -file {AUTHORITY_FILE} -keystore /usr/local/lib/trust.p12 -storepass changeit 2>&1"
        ),
    );
}

/// Puts a static program there that this compiler of C makes of a fixture.
pub fn install_static(fence: &Fence, compiler: &str, source: &str, path: &str) {
    let built = tempfile::tempdir().expect("a directory");
    let program = built.path().join("program");
    compile(Command::new(compiler).args(["-static", "-O1", "-o"]).arg(&program).arg(fixture(source)));
    fence.world.install(&program, path);
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn compile(command: &mut Command) {
    assert!(command.status().expect("a compiler").success(), "{command:?}");
}
