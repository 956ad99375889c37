//! The command line: what each flag comes to, and that whatever is wrong is said in one line.
use super::*;
use crate::policy::{Leftovers, Loopback, Posture};
use crate::probe::render::Form;

fn cli(args: &str) -> Command {
    match parse(std::iter::once("ringfence").chain(args.split(' '))) {
        Ok(Parsed::Cli(cli)) => cli.command,
        other => panic!("{args}: {other:?}"),
    }
}

fn fault(args: &str) -> String {
    let args = args.split(' ').filter(|arg| !arg.is_empty());
    parse(std::iter::once("ringfence").chain(args)).unwrap_err().to_string()
}

#[test]
fn every_flag_reaches_the_policy_or_the_run() {
    let Command::Run(args) = cli(
        "run --policy non-root --network restricted --filesystem locked --privilege locked --allow-host a.test \
         --allow-host *.b.test:8443 --trust-range 10.1.0.0/16 --loopback 3000,80 --writable /data/ --read-only /app/.git \
         --upstream http://proxy.test:3128 --explain --transparent --publish 3000 --publish [::1]:80 --protect .git/hooks/ --protect ~/x --socket /run/user/7/agent \
         --shield /srv/b --shield /srv/a --shield-harbor --shield-git=/srv/w --shield-git --watch-read ~/fixtures \
         --workspace /srv/w --workdir /srv/w/sub --user 1000:1001 --control-plane-port 8901 --abi i386 --harness codex \
         --env-pass LD_PRELOAD --env-drop SECRET --clear-env --ledger fd:7 --ledger degrade --label a=1 --label b=x=y \
         --json-status-fd 3 --leftovers keep -- sh -c --network",
    ) else {
        panic!("not run")
    };
    let policy = args.policy.load().unwrap();
    assert_eq!(
        policy.to_toml(),
        "network = \"restricted\"\nfilesystem = \"locked\"\nprivilege = \"locked\"\n\
         allow-host = [\"a.test\", \"*.b.test:8443\"]\ntrust-range = [\"10.1.0.0/16\"]\nloopback = [80, 3000]\n\
         publish = [\"127.0.0.1:3000\", \"[::1]:80\"]\n\
         upstream = \"http://proxy.test:3128\"\nexplain = true\ntransparent = true\n\
         writable = [\"/data\"]\nread-only = [\"/app/.git\"]\n\
         protect = [\".git/hooks/\", \"~/x\"]\nshield = [\"/srv/a\", \"/srv/b\"]\nshield-harbor = true\nshield-git = [\"workspace\", \"/srv/w\"]\nwatch-read = [\"~/fixtures\"]\nsocket = [\"/run/user/7/agent\"]\nworkspace = \"/srv/w\"\nworkdir = \"/srv/w/sub\"\n\
         user = \"1000:1001\"\ncontrol-plane-port = [8901]\nabi = [\"i386\"]\nharness = \"codex\"\nenv-pass = [\"LD_PRELOAD\"]\n\
         env-drop = [\"SECRET\"]\nclear-env = true\nledger = \"degrade\"\nleftovers = \"keep\"\n"
    );
    assert_eq!(args.policy.ledger_place(), Some(&LedgerPlace::Descriptor(7)));
    assert_eq!(args.run.labels(), BTreeMap::from([("a".into(), "1".into()), ("b".into(), "x=y".into())]));
    assert_eq!(args.run.json_status_fd, Some(3));
    assert_eq!(args.command, ["sh", "-c", "--network"]);
    assert_eq!(policy.leftovers, Some(Leftovers::Keep));
}

#[test]
fn what_was_meant_for_an_upstream_is_not_repeated() {
    let line = fault("run --upstream https://me:secret@proxy.test:3128 -- true");
    assert!(line.contains("--upstream") && line.contains("accepted: none") && !line.contains("secret"), "{line}");
    let Command::Run(args) = cli("run --upstream http://me:secret@proxy.test:3128 -- true") else { panic!("not run") };
    let refused = args.policy.load().unwrap_err().to_string();
    assert!(refused.contains("/proc/PID/cmdline") && !refused.contains("secret"), "{refused}");
}

#[test]
fn the_default_is_nist_high() {
    let Command::Run(args) = cli("run -- true") else { panic!("not run") };
    let policy = args.policy.load().unwrap();
    assert_eq!(policy.level_name(), "nist-high");
    assert_eq!(policy.network.loopback, Loopback::All);
    assert!(!policy.environment.clear);
    assert_eq!(args.policy.ledger_place(), None);
}

#[test]
fn every_subcommand_parses() {
    let head = "a".repeat(64).to_uppercase();
    assert!(
        matches!(cli("plan --json --network open"), Command::Plan(args) if args.json && args.policy.layer.network == Some(Posture::Open))
    );
    assert!(
        matches!(cli("why pypi.org:80 --network locked"), Command::Why { target, policy } if target == "pypi.org:80" && policy.layer.network == Some(Posture::Locked))
    );
    assert!(matches!(cli("connect a.test 22"), Command::Connect { host, port } if host == "a.test" && port == "22"));
    assert!(matches!(cli("plan -- sh"), Command::Plan(args) if args.command == ["sh"]));
    assert!(
        matches!(cli("policy show --policy ./x.toml"), Command::Policy(PolicyCommand::Show(flags)) if flags.policy == PolicyArg::File("./x.toml".into()))
    );
    assert!(
        matches!(cli("probe --only a b.* --format tap --timeout 5 --rung bare --network open"), Command::Probe(args)
            if args.suite.only == ["a", "b.*"] && args.suite.timeout == 5 && args.suite.format == Form::Tap
                && args.run.demanded().is_some() && args.policy.layer.network == Some(Posture::Open))
    );
    assert!(matches!(cli("policy check x"), Command::Policy(PolicyCommand::Check { .. })));
    assert!(
        matches!(cli("allowlist check a.test b.test:22 --policy locked"), Command::Allowlist(AllowlistCommand::Check { targets, .. }) if targets.len() == 2)
    );
    assert!(
        matches!(cli(&format!("verify l --head {head}")), Command::Verify(args) if args.head.as_ref().unwrap().as_str() == "a".repeat(64))
    );
    assert!(matches!(cli("report a b"), Command::Report(args) if args.logs.len() == 2));
}

#[test]
fn help_and_version_are_text_for_standard_output() {
    for args in ["--help", "run --help", "policy --help", "-h"] {
        let parsed = parse(std::iter::once("ringfence").chain(args.split(' ')));
        assert!(matches!(parsed, Ok(Parsed::Text(text)) if text.contains("Usage")), "{args}");
    }
    let version = parse(["ringfence", "--version"]);
    assert!(matches!(version, Ok(Parsed::Text(text)) if text == format!("ringfence {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn each_fault_is_one_line_that_names_the_value_and_what_is_accepted() {
    for (args, expected) in [
        (
            "run --policy nist-hihg -- true",
            "\"nist-hihg\" is no level; accepted: control, non-root, nist-high, locked, or a file",
        ),
        ("run --network shut -- true", "\"shut\" is no posture; accepted: open, restricted, locked"),
        ("run --harness cursor -- true", "\"cursor\" is no harness; accepted: none, claude-code"),
        ("run --user 4294967295 -- true", "\"4294967295\" is no user; accepted:"),
        ("run --allow-host a*b.test -- true", "\"a*b.test\" is no allowlist entry ('*' may only"),
        ("run --trust-range 10.0.0.1/8 -- true", "it has host bits; the network is 10.0.0.0/8"),
        ("run --writable data -- true", "\"data\" is no path; accepted: an absolute path"),
        ("run --ledger fd:x -- true", "\"fd:x\" is no ledger; accepted:"),
        ("run --label x -- true", "\"x\" is no label; accepted: KEY=VALUE"),
        ("run --json-status-fd -1 -- true", "-1"),
        ("run --loopback some -- true", "\"some\" is no loopback setting; accepted: all, proxy, or ports"),
        (
            "run --upstream socks5://me:x@p.test:1 -- true",
            "\"socks5://\\u{2026}@p.test:1\" is no upstream (it is asked",
        ),
        ("run --explain=maybe -- true", "maybe"),
        ("run --leftovers burn -- true", "\"burn\" is no word for leftovers; accepted: kill, keep"),
        ("run --control-plane-port 0 -- true", "--control-plane-port"),
        ("run --clear-env=maybe -- true", "maybe"),
        ("run", "<CMD>"),
        ("run --policy control", "<CMD>"),
        ("run true", "'true'"),
        ("run --netwrok open -- true", "did you mean --network?"),
        (
            "rnu",
            "unrecognized subcommand 'rnu'; accepted: run, up, exec, down, status, plan, policy, allowlist, why, connect, verify, report, canary, probe",
        ),
        ("probe --format xml", "\"xml\" is no format; accepted: table, json, tap, junit"),
        ("probe --timeout 0", "0 is not in 1..=86400"),
        ("probe --list --explain x", "cannot be used with"),
        ("probe --external --ledger /x", "cannot be used with"),
        ("probe -- true", "unexpected argument"),
        ("policy shwo", "accepted: show, check"),
        ("verify l --head abc", "64 hexadecimal digits"),
        ("allowlist check", "HOST[:PORT]"),
        ("connect a.test", "<PORT>"),
        ("report", "LOG"),
        ("policy", "no subcommand is given; accepted: show, check"),
        ("", "no subcommand is given; accepted: run"),
    ] {
        let line = fault(args);
        assert!(line.contains(expected), "{args}: {line}");
        assert!(!line.contains('\n') && !line.starts_with("error"), "{args}: {line:?}");
    }
}
