//! git over ssh, from inside the sandbox through the proxy to a real sshd, on every rung; and what becomes of ringfence's own
//! file, which ssh starts for it there.

mod common;
#[path = "rungs/rung.rs"]
mod rung;
mod sshd;

use common::{Ended, Fence, RINGFENCE, as_root, own_user};
use ringfence::ledger::record::Mechanism;
use rung::{RUNGS, Rung};
use serde_json::Value;
use sshd::{Sshd, git_ssh_command};
use world::Said;
use world::address::PUBLIC4;

const HOME: &str = "/home/dev";
/// The ledgers of runs that are over: each rung has one name for its own.
const LEDGERS: &str = "/var/log/rungs*/*.jsonl";
const ADMITTED: &str = "git.example.org";
/// The same server by a name that no entry holds, and by one that is admitted on the ports of the web.
const REFUSED: [(&str, &str); 2] = [("other.example.org", "default-deny"), ("pypi.org", "port")];

fn fence(user: u32) -> (Fence, Sshd) {
    let fence = Fence::new();
    rung::prepare(&fence, user, HOME);
    for name in [ADMITTED].into_iter().chain(REFUSED.map(|(name, _)| name)) {
        fence.internet.resolver.host(name, &[PUBLIC4.into()]);
    }
    let sshd = Sshd::start(&fence);
    (fence, sshd)
}

fn run(rung: Rung, fence: &Fence, user: u32, flags: &[&str], script: &str) -> Ended {
    let (mut command, ledger) = rung.command(fence, user, HOME, flags, &["bash", "-c", script]);
    command.env("GIT_SSH_COMMAND", git_ssh_command());
    as_root(fence, &format!("rm -f {LEDGERS}"));
    fence.ended(Said::from(fence.world.output_with(&rung.less(user), command)), ledger)
}

fn git_over_ssh(rung: Rung) {
    let user = own_user();
    let (fence, sshd) = fence(user);
    let clone = |name: &str, place: &str| format!("git clone -q {} {place}", sshd.url(name));
    let refused: String = REFUSED.iter().map(|(name, _)| format!("{}\necho {name}=$?\n", clone(name, "no"))).collect();
    let script = format!(
        "{}\necho cloned=$?\nsha256sum < project/first\ncd project; head -c 4000000 /dev/urandom > second; git add second
         git -c user.name=x -c user.email=x@x.test commit -qm two; git push -q origin HEAD:main; echo pushed=$?
         echo head=$(git rev-parse HEAD)\ncd ..\necho \"of=$GIT_SSH_COMMAND\"\n",
        clone(ADMITTED, "project")
    );
    let flags = ["--allow-host", &format!("{ADMITTED}:22")];
    let ended = run(rung, &fence, user, &flags, &script);
    assert_eq!(ended.start().rung, rung.name(), "{ended}");
    assert_eq!((ended.value("cloned"), ended.value("pushed"), ended.said.err.as_str()), ("0", "0", ""), "{ended}");
    assert_eq!(sshd.git(&["rev-parse", "main"]), ended.value("head"), "{ended}");
    assert_eq!(
        ended.value("of"),
        format!("{} -o ProxyCommand='{RINGFENCE} connect %h %p'", git_ssh_command()),
        "{ended}"
    );
    assert_eq!((sshd.connections(), ended.denials().len(), ended.seal().complete), (2, 0, true), "{ended}");
    let sum = as_root(&fence, "sha256sum < /workspace/project/first");
    assert!(ended.said.out.contains(&sum), "{ended}");

    // The same server by other names.
    let ended = run(rung, &fence, user, &flags, &refused);
    for (name, rule) in REFUSED {
        assert_eq!(ended.value(name), "128", "{ended}");
        let line = format!("connect: {name}:22: the proxy answered 403 Forbidden");
        assert!(ended.said.err.contains(&line), "{ended}");
        let denials = ended.denials_of(name);
        assert_eq!(denials.len(), 1, "{ended}");
        let denial = denials[0];
        assert_eq!(
            (denial.mechanism, denial.operation.as_str(), denial.object.port, denial.http_status, denial.rule.as_str()),
            (Mechanism::Proxy, "CONNECT", Some(22), Some(403), rule),
            "{ended}"
        );
    }
    assert_eq!((sshd.connections(), ended.denials().len()), (2, REFUSED.len()), "{ended}");
    let asked = fence.internet.resolver.questions();
    assert!(!format!("{asked:?}").contains(REFUSED[0].0), "{asked:?}");
    // Live: without ringfence they lead there.
    let free = format!("cd /tmp; export HOME={HOME} GIT_SSH_COMMAND=\"{}\"; {refused}", git_ssh_command());
    let free = fence.as_user(user, &free.replace(" no\n", " $RANDOM\n"));
    for (name, _) in REFUSED {
        assert_eq!(common::value(&free, name), "0", "{free}");
    }
    assert_eq!(sshd.connections(), 2 + REFUSED.len(), "{free}");
}

#[test]
fn it_works_on_full() {
    git_over_ssh(Rung::Full);
}

#[test]
fn it_works_on_container() {
    git_over_ssh(Rung::Container);
}

#[test]
fn it_works_on_rootless() {
    git_over_ssh(Rung::Rootless);
}

#[test]
fn it_works_on_bare() {
    git_over_ssh(Rung::Bare);
}

/// Every way by which the file `$p` could get another content or another could get its name. All are tried; the status of each.
const ATTACK: &str = r#"
d=$(dirname "$p"); cp /bin/true "$evil"
try() { name=$1; shift; "$@" 2>/dev/null; echo "$name=$?"; }
write() { echo evil >> "$p"; }
try write write
try copy cp "$evil" "$p"
try install install "$evil" "$p"
try chmod chmod 0777 "$p"
try replace mv -f "$evil" "$p"
try link ln -f "$p" "$evil.link"
try move mv "$p" "$p.away"
try directory mv "$d" "$d.away"
try above mv "$(dirname "$d")" "$(dirname "$d").away"
try remove rm -f "$p"
"#;
const WAYS: [&str; 10] =
    ["write", "copy", "install", "chmod", "replace", "link", "move", "directory", "above", "remove"];

#[test]
fn the_program_can_be_started_and_not_changed_where_ssh_is_admitted_and_is_masked_elsewhere() {
    let user = own_user();
    for rung in RUNGS {
        let fence = Fence::new();
        rung::prepare(&fence, user, HOME);
        let look = format!("sha256sum {RINGFENCE}; stat -c '%a %u %g %h' {RINGFENCE}");
        let before = as_root(&fence, &look);
        let script = format!("p={RINGFENCE}; evil=/tmp/evil; $p --version > /dev/null; echo started=$?\n{ATTACK}");
        let ended = run(rung, &fence, user, &["--allow-host", "git.example.org:22"], &script);
        assert_eq!(ended.value("started"), "0", "{ended}");
        for way in WAYS {
            assert_ne!(ended.value(way), "0", "{way}: {ended}");
        }
        assert_eq!(as_root(&fence, &look), before, "{ended}");
        // Without port 22 nothing of it is there.
        let script = format!("{RINGFENCE} --version > /dev/null; echo started=$?; echo \"of=${{GIT_SSH_COMMAND-}}\"");
        let ended = run(rung, &fence, user, &["--allow-host", "git.example.org"], &script);
        let started = if rung.is_without_namespaces() { "0" } else { "126" };
        assert_eq!((ended.value("started"), ended.value("of")), (started, git_ssh_command().as_str()), "{ended}");
    }
}

/// Where the command is the caller the program may be its own. This one's name means something to both shells that read it,
/// and to ssh.
#[test]
fn the_callers_own_program_is_started_by_any_name_and_cannot_be_replaced() {
    let user = own_user();
    let (fence, sshd) = fence(user);
    // On `bare` none can be held in what is writable.
    let cases = [
        (Rung::Rootless, ".local/my bin", "restricted"),
        (Rung::Rootless, "bin/own", "open"),
        (Rung::Rootless, ".local/my bin", "locked"),
        (Rung::Bare, "bin/own", "restricted"),
    ];
    for (number, (rung, place, filesystem)) in cases.into_iter().enumerate() {
        let directory = format!("{HOME}/{place}");
        let program = format!("{directory}/it's 100%h $(x)");
        let quoted = format!("'{}'", program.replace('\'', r"'\''"));
        as_root(
            &fence,
            &format!(
                "rm -rf /workspace/* {LEDGERS}; d='{directory}'; mkdir -p \"$d\" {HOME}/.local
                 install {RINGFENCE} {quoted}; chown -R {user}:{user} {HOME}"
            ),
        );
        let binary = fence.world.read(RINGFENCE);
        let flags = ["--allow-host", &format!("{ADMITTED}:22"), "--env-pass", "p", "--filesystem", filesystem];
        let url = sshd.url(ADMITTED);
        let script = format!(
            "git clone -q {url} project; echo cloned=$?; evil=~/.local/evil\n{ATTACK}\ngit clone -q {url} again; echo again=$?"
        );
        let (named, ledger) = rung.command(&fence, user, HOME, &flags, &["bash", "-c", &script]);
        let mut command = fence.world.command(&program);
        command.current_dir(rung::WORKSPACE).args(named.get_args());
        command.env("HOME", HOME).env("GIT_SSH_COMMAND", git_ssh_command()).env("p", &program);
        let ended = fence.ended(Said::from(fence.world.output_with(&rung.less(user), command)), ledger);
        assert_eq!((ended.value("cloned"), ended.value("again")), ("0", "0"), "{ended}");
        for way in WAYS {
            assert_ne!(ended.value(way), "0", "{way}: {ended}");
        }
        assert_eq!(sshd.connections(), 2 * (number + 1), "{ended}");
        assert!(fence.world.read(&program) == binary, "{ended}");
        // Live: without ringfence the user does all of it.
        let free = fence.as_user(user, &format!("export p={quoted} evil={HOME}/.local/evil; {ATTACK}"));
        for way in WAYS {
            assert_eq!(common::value(&free, way), "0", "{way}: {free}");
        }
    }
}

#[test]
fn plan_says_where_the_command_cannot_start_it() {
    let fence = Fence::new();
    let closed = "/root/bin/ringfence";
    as_root(
        &fence,
        &format!(
            "chmod 0700 /root; mkdir -p /root/bin /opt/b; cp {RINGFENCE} {closed}; cp {RINGFENCE} /opt/b/r; chmod 0700 /opt/b/r"
        ),
    );
    let notes = |program: &str, flags: &[&str]| {
        let mut command = fence.world.command(program);
        command.args(["plan", "--json"]).args(flags);
        let said = Said::from(fence.world.output(command));
        assert_eq!(said.code, Some(0), "{said}");
        let plan: Value = serde_json::from_str(&said.out).expect("JSON");
        let notes = plan["notes"].as_array().expect("a list").iter().filter_map(Value::as_str);
        notes.filter(|note| note.contains("ssh")).map(str::to_owned).collect::<Vec<_>>()
    };
    let ssh = ["--allow-host", "*.example.org:22"];
    let expected = |at: &str, program: &str| {
        vec![format!(
            "ssh through the proxy will not work: {at} is closed to the command by its mode, and {program} is the ProxyCommand"
        )]
    };
    assert_eq!(notes(closed, &ssh), expected("/root", closed));
    assert_eq!(notes("/opt/b/r", &ssh), expected("/opt/b/r", "/opt/b/r"));
    let open = "the command can read and start this program's file: it is ssh's ProxyCommand";
    assert_eq!(notes(RINGFENCE, &ssh), [open]);
    assert_eq!(notes(RINGFENCE, &["--allow-host", "*.example.org"]), Vec::<String>::new());
    assert_eq!(notes(closed, &["--allow-host", "*.example.org"]), Vec::<String>::new());
    // And so it is: the command gets no such variable, and the file stays masked.
    let mut command = fence.world.command(closed);
    command.args(["run", "--allow-host", "x.example.org:22", "--", "sh", "-c", "echo of=${GIT_SSH_COMMAND-none}"]);
    let said = Said::from(fence.world.output(command));
    assert_eq!((said.code, common::value(&said, "of")), (Some(0), "none"), "{said}");
}
