//! Real clients under `nist-high`, each against a registry of the closed world: they need nothing but what the
//! command is given, and what they bring works.

mod clients;
mod common;

use clients::registries;
use common::Fence;
use world::{Internet, World};

const FLAGS: [&str; 2] = ["--policy", "nist-high"];

fn fence() -> Fence {
    let world = World::new().expect("a closed world");
    let internet = Internet::serving(&world, registries::content()).expect("servers outside");
    Fence::of(world, internet)
}

#[test]
fn git_clones_over_https() {
    let script = "cd /workspace && git clone -q https://github.com/project.git && cat project/README";
    let ended = fence().run(&FLAGS, script);
    assert_eq!(ended.said.out, "a project of the closed world\n", "{ended}");
    assert!(ended.denials().is_empty(), "{ended}");
}

#[test]
fn pip_installs_from_the_index() {
    // The machine's own settings for pip are not the test's.
    let script =
        "export PIP_CONFIG_FILE=/dev/null PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CERT=/etc/ssl/certs/ca-certificates.crt
        /usr/bin/python3 -m pip install -q --no-cache-dir --target /workspace/packages closed-world &&
        PYTHONPATH=/workspace/packages /usr/bin/python3 -c 'import closed_world'";
    let ended = fence().run(&FLAGS, script);
    assert_eq!(ended.said.out, "imported\n", "{ended}");
    assert!(ended.denials().is_empty(), "{ended}");
}

#[test]
fn npm_installs_from_the_registry() {
    let script = format!(
        "cd /workspace && export NODE_EXTRA_CA_CERTS={} NPM_CONFIG_GLOBALCONFIG=/dev/null \
         npm_config_registry=https://registry.npmjs.org/
         npm install --no-audit --no-fund closed-world >/tmp/npm.log 2>&1 || cat /tmp/npm.log
         node -e 'require(\"closed-world\")'",
        world::AUTHORITY_FILE
    );
    let ended = fence().run(&FLAGS, &script);
    assert!(ended.said.out.ends_with("required\n"), "{ended}");
}
