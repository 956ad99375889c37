//! The credentials of a parent proxy are nowhere where the command, or a reader of the record, could find them.

mod common;
#[path = "upstream/parent.rs"]
mod parent;

use common::Fence;
use parent::{PAIR, PORT, Parent, WRITTEN, run_with, said_with, url, without_credentials};
use serde_json::json;
use std::ffi::OsStr;
use world::Less;
use world::address::{PRIVATE4, PUBLIC4};

#[test]
fn credentials_are_the_proxys_alone() {
    let fence = Fence::new();
    let _parent = Parent::start(&fence.world, PRIVATE4.into(), PORT, PAIR, json!({"pypi.org": PUBLIC4}));
    let file = "/root/upstream.toml";
    fence.world.write(file, format!("extends = \"nist-high\"\nupstream = \"{}\"\n", url()), 0o600);
    let script = format!(
        "curl -s -o /dev/null -w 'tunnel=%{{http_code}}\\n' https://pypi.org/
         env
         CANARY=seen-by-the-search sleep 5 &
         sleep 0.5
         echo canary=$(cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c seen-by-the-search)
         echo found=$(cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c '{}')
         cat {file} && echo read
         kill %1",
        // So that the command line of the search itself does not hold it.
        "tr%40ff[i]c-pw",
    );
    let variables = [("HTTPS_PROXY", url()), ("MY_PARENT", format!("-x {}", url())), ("KEPT", "kept".to_owned())];
    let environment: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let pass = ["--env-pass", "HTTPS_PROXY", "--env-pass", "MY_PARENT"];
    for source in [&["--policy", "nist-high", "--upstream", "environment"][..], &["--policy", file]] {
        let flags = [source, &pass].concat();
        let ended = run_with(&fence, &environment, &flags, &script);
        assert_eq!(ended.value("tunnel"), "200", "{ended}");
        assert_eq!((ended.value("canary"), ended.value("found"), ended.value("KEPT")), ("1", "0", "kept"), "{ended}");
        assert!(ended.value("HTTPS_PROXY").starts_with("http://127."), "{ended}");
        assert!(!ended.said.out.contains("read\n"), "{ended}");
        without_credentials(&ended.said.out);
        without_credentials(&ended.said.err);
        without_credentials(&String::from_utf8_lossy(&fence.world.read(&ended.ledger).expect("a ledger")));
        for subcommand in [&["plan"][..], &["plan", "--json"], &["policy", "show"], &["why", "pypi.org"]] {
            let said = said_with(&fence, &environment, &[subcommand, source].concat());
            assert_eq!(said.code, Some(0), "{subcommand:?}: {said}");
            without_credentials(&said.to_string());
            let names_it = subcommand[0] != "policy" || source.len() == 2;
            let shown = format!("http://…@{PRIVATE4}:{PORT}");
            assert_eq!(said.out.contains(&shown), names_it, "{subcommand:?}: {said}");
        }
    }
    // The control: where they are not this run's, a variable that is passed by its name has them.
    let passed = run_with(&fence, &environment, &["--policy", "nist-high", "--env-pass", "MY_PARENT"], "env");
    assert!(passed.value("MY_PARENT").contains(WRITTEN), "{passed}");
}

#[test]
fn a_file_with_credentials_is_refused_where_the_command_could_read_it() {
    let fence = Fence::new();
    let file = "/etc/upstream.toml";
    let run = |mode: u32, text: &str, rung: &str| {
        fence.world.write(file, text, mode);
        fence.run(&["--policy", file, "--rung", rung], &format!("cat {file} && echo read"))
    };
    let with = format!("extends = \"nist-high\"\nupstream = \"{}\"\n", url());
    let without = format!("extends = \"nist-high\"\nupstream = \"http://{PRIVATE4}:{PORT}\"\n");
    // The control: what is refused below is what the command would read.
    assert!(run(0o644, &without, "container").said.out.contains("read\n"));
    for mode in [0o644, 0o640, 0o604] {
        let refused = run(mode, &with, "container");
        assert_eq!(refused.said.code, Some(125), "{refused}");
        let told = format!("{file}: it holds an upstream's credentials, has mode {mode:04o}");
        assert!(refused.said.err.contains(&told), "{refused}");
        assert!(refused.records.is_empty(), "{refused}");
    }
    for (mode, rung) in [(0o600, "container"), (0o644, "full")] {
        let kept = run(mode, &with, rung);
        assert!(!kept.start().version.is_empty() && !kept.said.out.contains("read\n"), "{kept}");
        without_credentials(&kept.said.out);
    }
}

/// Where the command is the caller, or could be taken for it, the caller's own shell has the variable all the while.
#[test]
fn on_the_other_rungs_no_process_tells_the_command_of_credentials() {
    let user = common::own_user();
    let rungs = [
        ("container", Less::new().container()),
        ("rootless", Less::new().uid(user, user)),
        ("bare", Less::new().uid(user, user).no_userns()),
    ];
    let search = "curl -s -o /dev/null -w 'tunnel=%{http_code}\\n' https://pypi.org/
        echo found=$(cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c 'tr%40ff[i]c-pw')";
    for (rung, less) in rungs {
        let fence = Fence::new().less(less);
        let _parent = Parent::start(&fence.world, PRIVATE4.into(), PORT, PAIR, json!({"pypi.org": PUBLIC4}));
        let home = fence.less_user().map_or("/root".to_owned(), |user| format!("/home/{user}"));
        let from_a_shell = |program: &OsStr, arguments: Vec<&OsStr>| {
            let mut shell = fence.world.command("bash");
            shell.args(["-c", "\"$@\"; exit $?", "caller"]).arg(program).args(arguments);
            shell.env("HTTPS_PROXY", url()).env("HOME", &home);
            fence.output(shell)
        };
        let control = from_a_shell("bash".as_ref(), vec!["-c".as_ref(), search.as_ref()]);
        assert_ne!(common::value(&control, "found"), "0", "{rung}: {control}");

        let project = format!("{home}/project");
        let mut flags = vec!["--policy", "nist-high", "--rung", rung, "--upstream", "environment"];
        if fence.less_user().is_some() {
            common::as_root(&fence, &format!("install -d -o {user} -g {user} {project}"));
            flags.extend(["--workspace", &project, "--protect"]);
        }
        if rung == "bare" {
            let file = "/etc/upstream.toml";
            fence.world.write(file, format!("extends = \"nist-high\"\nupstream = \"{}\"\n", url()), 0o644);
            let refused = fence.run(&[&["--policy", file][..], &flags[2..4], &flags[6..]].concat(), "true");
            let told = "has mode 0644, and rung bare has no mask for it; accepted: upstream = \"environment\"";
            assert!(refused.said.code == Some(125) && refused.said.err.contains(told), "{refused}");
        }
        let (command, ledger) = fence.command(&flags, &["bash", "-c", search]);
        let ended = fence.ended(from_a_shell(command.get_program(), command.get_args().collect()), ledger);
        assert_eq!((ended.value("tunnel"), ended.value("found")), ("200", "0"), "{rung}: {ended}");
        assert_eq!(ended.start().rung, rung, "{ended}");
        without_credentials(&String::from_utf8_lossy(&fence.world.read(&ended.ledger).expect("a ledger")));
    }
}
