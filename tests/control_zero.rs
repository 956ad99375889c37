//! Under `control` nothing is ever recorded, and nothing looks: a package build leaves no denial. The same build in a
//! workspace under `nist-high` is refused nothing either (issue 3, "Shows").

mod common;

use common::{Ended, Fence};

/// A library, a program, a wheel and a tarball, built and installed beneath the directory.
const BUILD: &str = "
set -e
export LC_ALL=C; . /usr/local/lib/project.sh
grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status
cd /workspace; make_project thing; cd thing
./configure --prefix=/workspace/out >log; make -j2 >>log 2>&1; make check >>log 2>&1; make install >>log 2>&1; make clean >>log
/workspace/out/bin/thing
/usr/bin/python3 -m pip wheel -q --no-index --no-deps --no-build-isolation -w /workspace/wheels ./python 2>>log
/usr/bin/python3 -m pip install -q --no-index --no-deps --target /workspace/site /workspace/wheels/*.whl 2>>log
PYTHONPATH=/workspace/site /usr/bin/python3 -c 'import pkg; pkg.main()'
tar -C /workspace -czf /workspace/out.tar.gz out; mkdir /workspace/copy; tar -C /workspace/copy -xpzf /workspace/out.tar.gz
cp -a /workspace/out /workspace/again; rm -rf /workspace/copy /workspace/again
echo built
";

fn fence() -> Fence {
    let fence = Fence::new();
    fence.world.write("/usr/local/lib/project.sh", include_str!("acts/project.sh"), 0o644);
    fence
}

fn build(fence: &Fence, level: &str, after: &str) -> Ended {
    fence.run(&["--policy", level], &format!("{BUILD}{after}"))
}

fn lines(ended: &Ended) -> Vec<&str> {
    ended.said.out.lines().map(str::trim).collect()
}

#[test]
fn control_records_nothing_of_a_build_and_nothing_looks() {
    let ended = build(&fence(), "control", "mkdir -p /usr/local/x/y; touch /etc/passwd /srv/new; echo written");
    assert_eq!(lines(&ended), ["NoNewPrivs:\t0", "Seccomp:\t0", "3", "pkg", "built", "written"], "{ended}");
    assert!(ended.denials().is_empty(), "{ended}");
    assert!(ended.seal().complete && ended.seal().denials.values().all(|count| *count == 0), "{ended}");
}

#[test]
fn a_build_in_the_workspace_is_refused_nothing() {
    // The last act is refused: what is recorded of it shows that someone looks.
    let ended = build(&fence(), "nist-high", "mkdir /usr/local/x || echo refused");
    assert_eq!(lines(&ended), ["NoNewPrivs:\t1", "Seccomp:\t2", "3", "pkg", "built", "refused"], "{ended}");
    let objects: Vec<_> = ended.denials().iter().map(|d| (d.operation.as_str(), d.object.path.as_deref())).collect();
    assert_eq!(objects, [("mkdir", Some("/usr/local/x"))], "{ended}");
    assert!(ended.seal().complete, "{ended}");
}
