//! Levels, files and flags laid over each other; the file form's errors; the digest; what can't be held.
use super::*;
use crate::policy::{Authority, Axis, Verdict};
use proptest::prelude::*;

fn load(text: &str) -> Result<Policy, String> {
    Policy::from_toml(Path::new("p.toml"), text, &Layer::default()).map_err(|fault| fault.to_string())
}

fn admits(policy: &Policy, target: &str) -> bool {
    let authority = Authority::parse_connect(target.as_bytes()).unwrap();
    matches!(policy.effective_allowlist().unwrap().judge(&authority), Verdict::Admitted { .. })
}

#[test]
fn the_levels_are_the_designs_triples() {
    use Posture::{Locked, Open, Restricted};
    for (level, triple) in [
        ("control", [Open, Open, Open]),
        ("non-root", [Open, Open, Restricted]),
        ("nist-high", [Restricted, Restricted, Locked]),
        ("locked", [Locked, Locked, Locked]),
    ] {
        let policy = Policy::load(&level.parse().unwrap(), &Layer::default()).unwrap();
        assert_eq!(Axis::ALL.map(|axis| policy.postures().of(axis)), triple, "{level}");
        assert_eq!(policy.level_name(), level);
        assert_eq!(policy.check_holdable(), Ok(()));
    }
}

#[test]
fn flags_lie_over_the_file_and_the_file_over_the_level() {
    let flags = Layer {
        allow_host: vec!["c.test".parse().unwrap(), "a.test".parse().unwrap()],
        user: Some("flag".parse().unwrap()),
        network: Some(Posture::Locked),
        clear_env: Some(false),
        ..Layer::default()
    };
    let text = "extends = \"nist-high\"\nallow-host = [\"B.test\", \"a.test\"]\nuser = \"file\"\nworkspace = \"/w\"\nclear-env = true\n";
    let policy = Policy::from_toml(Path::new("p.toml"), text, &flags).unwrap();
    let allow: Vec<String> = policy.network.allow.iter().map(Entry::to_string).collect();
    assert_eq!(allow, ["a.test", "b.test", "c.test"]);
    assert_eq!(policy.privilege.user, Some(User::Name("flag".into())));
    assert_eq!(policy.filesystem.workspace.as_ref().unwrap().as_str(), "/w");
    assert_eq!(policy.network.posture, Posture::Locked);
    assert_eq!(policy.level_name(), "custom");
    assert!(!policy.environment.clear);
    assert_eq!(policy.file.as_deref(), Some(Path::new("p.toml")));
}

#[test]
fn each_fault_names_file_line_value_and_what_is_accepted() {
    for (text, start, parts) in [
        (
            "extends = \"nist-hihg\"",
            "p.toml:1: ",
            vec!["\"nist-hihg\" is no level", "accepted: control, non-root, nist-high, locked"],
        ),
        ("extends = \"locked\"\nnetwrok = \"open\"", "p.toml:2: ", vec!["unknown field `netwrok`", "`network`"]),
        ("extends = \"locked\"\n\nnetwork = \"shut\"", "p.toml:3: ", vec!["shut", "open", "restricted", "locked"]),
        (
            "extends = \"locked\"\nallow-host = [\n  \"a.test\",\n  \"a*b.test\",\n]",
            "p.toml:4: ",
            vec!["\"a*b.test\" is no allowlist entry", "accepted: host, *.host"],
        ),
        (
            "extends = \"locked\"\ntrust-range = [\"10.0.0.1/8\"]",
            "p.toml:2: ",
            vec!["\"10.0.0.1/8\"", "host bits", "accepted:"],
        ),
        ("extends = \"locked\"\nloopback = \"some\"", "p.toml:2: ", vec!["\"some\"", "accepted: all, proxy"]),
        ("extends = \"locked\"\nloopback = [0]", "p.toml:2: ", vec!["`0`", "nonzero u16"]),
        (
            "extends = \"locked\"\npublish = [\"0.0.0.0:80\"]",
            "p.toml:2: ",
            vec!["\"0.0.0.0:80\"", "not on this machine"],
        ),
        (
            "extends = \"locked\"\nprotect = [\"../x\"]",
            "p.toml:2: ",
            vec!["\"../x\"", "out of the workspace", "accepted:"],
        ),
        (
            "extends = \"locked\"\nupstream = \"socks5://me:secret@proxy.test:1080\"",
            "p.toml:2: ",
            vec!["\"socks5://", "@proxy.test:1080\" is no upstream", "accepted: none, environment, http://"],
        ),
        ("extends = \"locked\"\nexplain = \"yes\"", "p.toml:2: ", vec!["\"yes\"", "a boolean"]),
        ("extends = \"locked\"\nabi = [\"x32\"]", "p.toml:2: ", vec!["\"x32\" is no entry to the kernel", "i386"]),
        ("extends = \"locked\"\ncontrol-plane-port = [65536]", "p.toml:2: ", vec!["`65536`", "nonzero u16"]),
        ("extends = \"locked\"\nharness = \"cursor\"", "p.toml:2: ", vec!["\"cursor\"", "accepted: none, claude-code"]),
        (
            "extends = \"locked\"\nledger = \"/var/log/x\"",
            "p.toml:2: ",
            vec!["\"/var/log/x\"", "accepted: required, degrade (a place is given by --ledger)"],
        ),
        ("extends = \"locked\"\nclear-env = \"yes\"", "p.toml:2: ", vec!["\"yes\"", "a boolean"]),
        ("extends = \"locked\"\nuser = 1000", "p.toml:2: ", vec!["`1000`", "a string"]),
        ("extends = \"locked\"\nlabel = [\"a=1\"]", "p.toml:2: ", vec!["unknown field `label`"]),
        ("extends = \"locked\"\n[network]\nposture = \"open\"", "p.toml:3: ", vec!["expected one of `open`"]),
        ("extends = \"locked\"\nextends = \"control\"", "p.toml:2: ", vec!["duplicate key"]),
        ("extends = \"locked\"\nuser = \"a", "p.toml:2: ", vec![]),
        (
            "network = \"open\"",
            "policy file p.toml: ",
            vec!["no posture for filesystem, privilege", "extends = \"LEVEL\""],
        ),
        ("", "policy file p.toml: ", vec!["no posture for network, filesystem, privilege"]),
        ("extends = \"locked\"\nwritable = [\"/a\"]\nread-only = [\"/a/\"]", "/a is named both", vec!["accepted"]),
        ("extends = \"locked\"\nworkspace = \"/\"", "/ is named writable", vec!["accepted"]),
    ] {
        let fault = load(text).unwrap_err();
        assert!(fault.starts_with(start), "{text}: {fault}");
        assert!(!fault.contains('\n'), "{text}: {fault}");
        for part in parts {
            assert!(fault.contains(part), "{text}: {fault} lacks {part}");
        }
    }
}

#[test]
fn a_file_that_is_not_there_or_no_text_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.toml");
    let load = || Policy::load(&PolicyArg::File(file.clone()), &Layer::default()).unwrap_err().to_string();
    assert_eq!(load(), format!("policy file {}: No such file or directory (os error 2)", file.display()));
    std::fs::write(&file, b"extends = \"\xff\"").unwrap();
    assert_eq!(load(), format!("policy file {}: stream did not contain valid UTF-8", file.display()));
}

#[test]
fn the_allowlist_of_each_posture() {
    let policy = |level: &str, text: &str| load(&format!("extends = \"{level}\"\n{text}")).unwrap();
    assert!(policy("control", "allow-host = [\"a.test\"]").effective_allowlist().is_none());
    let restricted = policy("nist-high", "harness = \"codex\"\nallow-host = [\"a.test\"]");
    assert_eq!(restricted.effective_allowlist().unwrap().len(), 205 + 3 + 1);
    for target in ["pypi.org:443", "chatgpt.com:443", "a.test:80"] {
        assert!(admits(&restricted, target), "{target}");
    }
    let bare = policy("nist-high", "");
    assert_eq!(bare.effective_allowlist().unwrap().len(), 205);
    assert!(!admits(&bare, "chatgpt.com:443") && !admits(&bare, "a.test:443"));
    // Already on the list of the level.
    assert_eq!(policy("nist-high", "harness = \"claude-code\"").effective_allowlist().unwrap().len(), 205);
    let locked = policy("locked", "harness = \"codex\"\nallow-host = [\"a.test\"]");
    assert_eq!(locked.effective_allowlist().unwrap().len(), 4);
    assert!(!admits(&locked, "pypi.org:443") && admits(&locked, "chatgpt.com:443") && admits(&locked, "a.test:443"));
    assert!(policy("locked", "").effective_allowlist().unwrap().is_empty());
}

#[test]
fn loopback_follows_the_network_unless_said() {
    let loopback = |text: &str| load(text).unwrap().network.loopback;
    assert_eq!(loopback("extends = \"nist-high\""), Loopback::All);
    assert_eq!(loopback("extends = \"locked\""), Loopback::Proxy);
    assert_eq!(loopback("extends = \"locked\"\nloopback = \"all\""), Loopback::All);
    assert_eq!(loopback("extends = \"locked\"\nnetwork = \"restricted\""), Loopback::All);
}

#[test]
fn what_cannot_be_held_is_refused_with_why() {
    use Posture::{Locked, Open, Restricted};
    let mut holdable = 0;
    for network in [Open, Restricted, Locked] {
        for filesystem in [Open, Restricted, Locked] {
            for privilege in [Open, Restricted, Locked] {
                let flags = Layer {
                    network: Some(network),
                    filesystem: Some(filesystem),
                    privilege: Some(privilege),
                    ..Layer::default()
                };
                let policy = Policy::load(&PolicyArg::Level(Level::Control), &flags).unwrap();
                let expected = if privilege == Locked || (network == Open && filesystem == Open) {
                    Ok(())
                } else if network > Open {
                    Err(Unholdable::Network { network, privilege })
                } else {
                    Err(Unholdable::Filesystem { filesystem, privilege })
                };
                holdable += usize::from(expected.is_ok());
                assert_eq!(policy.check_holdable(), expected);
            }
        }
    }
    assert_eq!(holdable, 9 + 2);
    for user in ["root", "0", "0:1000"] {
        let text = format!("extends = \"non-root\"\nuser = \"{user}\"");
        assert_eq!(load(&text).unwrap().check_holdable(), Err(Unholdable::Root { privilege: Restricted }));
    }
    let kept = load("extends = \"control\"\nuser = \"root\"").unwrap();
    assert_eq!(kept.check_holdable(), Ok(()));
}

#[test]
fn a_level_has_one_digest_and_any_change_has_another() {
    let base = load("extends = \"nist-high\"").unwrap();
    assert_eq!(base.digest(), Policy::of_level(Level::NistHigh).digest());
    assert_eq!(base.digest().len(), 64);
    let mut seen = vec![base.digest()];
    for change in [
        "network = \"locked\"",
        "filesystem = \"open\"",
        "privilege = \"open\"",
        "allow-host = [\"a.test\"]",
        "trust-range = [\"10.0.0.0/8\"]",
        "loopback = \"proxy\"",
        "writable = [\"/a\"]",
        "read-only = [\"/a\"]",
        "protect = []",
        "protect = [\".git/hooks/\"]",
        "socket = [\"~/s\"]",
        "publish = [\"3000\"]",
        "upstream = \"environment\"",
        "upstream = \"http://proxy.test:3128\"",
        "upstream = \"http://me:secret@proxy.test:3128\"",
        "explain = true",
        "transparent = true",
        "workspace = \"/a\"",
        "workdir = \"/a\"",
        "user = \"1000\"",
        "control-plane-port = [1]",
        "abi = [\"i386\"]",
        "harness = \"codex\"",
        "env-pass = [\"A\"]",
        "env-drop = [\"A\"]",
        "clear-env = true",
        "ledger = \"degrade\"",
        "leftovers = \"kill\"",
    ] {
        let digest = load(&format!("extends = \"nist-high\"\n{change}")).unwrap().digest();
        assert!(!seen.contains(&digest), "{change}");
        seen.push(digest);
    }
}

#[test]
fn credentials_of_an_upstream_come_from_a_file_and_are_shown_by_nothing() {
    let with = |password: &str| {
        load(&format!("extends = \"nist-high\"\nupstream = \"http://me:{password}@proxy.test:3128\"")).unwrap()
    };
    let policy = with("secret");
    let Upstream::Proxy(parent) = &policy.network.upstream else { panic!("{policy:?}") };
    assert_eq!(parent.credentials().unwrap().pair(), b"me:secret");
    assert!(policy.to_toml().contains("upstream = \"http://…@proxy.test:3128\"\n"), "{}", policy.to_toml());
    assert!(!format!("{policy:?}").contains("secret"));
    assert_eq!(policy.digest(), with("other").digest());
    let back = load(&policy.to_toml()).unwrap_err();
    assert!(back.contains("were left out where it was printed"), "{back}");

    let flags = |url: &str| Layer { upstream: Some(url.parse().unwrap()), ..Layer::default() };
    let base = PolicyArg::Level(Level::NistHigh);
    let refused = Policy::load(&base, &flags("http://me:secret@proxy.test:3128")).unwrap_err().to_string();
    assert!(refused.contains("--upstream http://…@proxy.test:3128: credentials on the command line"), "{refused}");
    assert!(!refused.contains("secret"));
    Policy::load(&base, &flags("http://proxy.test:3128")).unwrap();
    let over =
        Policy::from_toml(Path::new("p.toml"), "extends = \"nist-high\"\nupstream = \"environment\"", &flags("none"));
    assert_eq!(over.unwrap().network.upstream, Upstream::None);
}

fn posture() -> impl Strategy<Value = Option<Posture>> {
    prop::option::of(prop_oneof![Just(Posture::Open), Just(Posture::Restricted), Just(Posture::Locked)])
}

fn list<T: std::str::FromStr<Err: std::fmt::Debug> + std::fmt::Debug>(
    pattern: &'static str,
) -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(pattern.prop_map(|text| text.parse().unwrap()), 0..4)
}

fn layer() -> impl Strategy<Value = Layer> {
    (
        (posture(), posture(), posture()),
        (
            list("(\\*\\.)?[a-c]{1,3}\\.test(:[1-9])?"),
            list("10\\.[0-9]\\.0\\.0/16"),
            list("/w[a-c~ ]{0,3}"),
            list("~/r[\\\\\"'a\n]{0,2}"),
        ),
        (
            list("[A-Z=]{0}[A-C\"é]{1,3}"),
            list("[D-F]{1,3}"),
            list("[1-9]{1,3}"),
            prop::option::of(any::<bool>()),
            list("i386"),
        ),
        (list("(127\\.0\\.0\\.[1-9]:)?[1-9]{1,3}"), prop::option::of(list("(~/)?[a-c.]{1,2}x/?")), list("/s[a-c]")),
        (prop::option::of("[0-9]{1,4}(:[0-9]{1,4})?|[a-z]{1,5}"), prop::option::of("all|proxy|[1-9],[1-9]{2}")),
        (
            prop::option::of("none|environment|http://[a-c]{1,3}\\.test:[1-9]{1,4}/?"),
            prop::option::of(any::<bool>()),
            prop::option::of(any::<bool>()),
        ),
    )
        .prop_map(
            |(
                postures,
                (allow_host, trust_range, writable, read_only),
                (env_pass, env_drop, control_plane_port, clear_env, abi),
                (publish, protect, socket),
                (user, loopback),
                (upstream, explain, transparent),
            )| Layer {
                network: postures.0,
                filesystem: postures.1,
                privilege: postures.2,
                allow_host,
                trust_range,
                writable,
                read_only,
                env_pass,
                env_drop,
                control_plane_port,
                abi,
                publish,
                protect,
                socket,
                clear_env,
                user: user.map(|text| text.parse().unwrap()),
                loopback: loopback.map(|text| text.parse().unwrap()),
                upstream: upstream.map(|text| text.parse().unwrap()),
                explain,
                transparent,
                ..Layer::default()
            },
        )
}

proptest! {
    #[test]
    fn the_printed_policy_loads_back_to_the_same_digest(over in layer()) {
        let policy = Policy::load(&PolicyArg::Level(Level::NistHigh), &over).unwrap();
        let back = load(&policy.to_toml()).unwrap();
        prop_assert_eq!(back.digest(), policy.digest());
        prop_assert_eq!(Policy { file: None, ..back }, policy);
    }

    #[test]
    fn the_order_and_repetition_of_list_items_do_not_matter(over in layer()) {
        let once = Policy::load(&PolicyArg::Level(Level::NistHigh), &over).unwrap();
        let mut lists = over.clone();
        lists.allow_host.reverse();
        lists.writable.reverse();
        let twice = Policy::load(&PolicyArg::Level(Level::NistHigh), &over.under(lists)).unwrap();
        prop_assert_eq!(once.digest(), twice.digest());
    }

    #[test]
    fn no_text_panics_and_each_fault_is_one_line(text in "(extends = \"nist-high\"\n)?([a-z-]{1,10} = [\"a-z0-9\\[\\],\n ]{0,12}\n){0,3}|\\PC{0,40}") {
        if let Err(fault) = load(&text) {
            prop_assert!(!fault.contains('\n'), "{}", fault);
        }
    }
}
