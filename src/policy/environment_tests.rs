//! The composition of the command's environment, and the data behind it.
use super::*;
use crate::policy::{Layer, Level, PolicyArg};

fn composed(level: Level, flags: Layer, caller: &[(&str, &str)]) -> BTreeMap<String, String> {
    composed_with(None, level, flags, caller)
}

fn composed_with(
    connector: Option<&Path>,
    level: Level,
    flags: Layer,
    caller: &[(&str, &str)],
) -> BTreeMap<String, String> {
    let policy = Policy::load(&PolicyArg::Level(level), &flags).unwrap();
    let caller: Vec<(OsString, OsString)> = caller.iter().map(|(name, value)| (name.into(), value.into())).collect();
    let home = Path::new("/home/agent");
    let trees = crate::policy::Trees::of(&policy, home);
    let facts = Facts {
        caller: &caller,
        added: &[],
        home,
        user: Some("agent"),
        proxy: (policy.network.posture > Posture::Open).then(|| "127.0.0.1:3128".parse().unwrap()),
        connector,
        writable: &|path| trees.admit_write(path),
    };
    let text = |value: OsString| value.into_string().unwrap();
    compose(&policy, &facts).into_iter().map(|(name, value)| (text(name), text(value))).collect()
}

#[test]
fn every_proxy_setting_is_ours_and_none_is_the_callers() {
    let caller = [
        ("http_proxy", "http://old:1"),
        ("HTTPS_PROXY", "http://old:1"),
        ("NO_PROXY", "*"),
        ("No_Proxy", "*"),
        ("ftp_proxy", "http://old:1"),
        ("npm_config_https_proxy", "http://old:1"),
        ("CLOUDSDK_PROXY_PORT", "1"),
        ("NODE_USE_ENV_PROXY", "0"),
        ("RSYNC_PROXY", "old:1"),
    ];
    let env = composed(Level::NistHigh, Layer::default(), &caller);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
        assert_eq!(env[name], "http://127.0.0.1:3128", "{name}");
    }
    for name in ["NO_PROXY", "no_proxy"] {
        assert_eq!(env[name], "localhost,127.0.0.1,::1");
    }
    assert_eq!(env["NODE_USE_ENV_PROXY"], "1");
    assert_eq!((&*env["CLOUDSDK_PROXY_ADDRESS"], &*env["CLOUDSDK_PROXY_PORT"]), ("127.0.0.1", "3128"));
    assert!(!env.values().any(|value| value.contains("old")), "{env:?}");
    assert!(!env.contains_key("No_Proxy"));
}

#[test]
fn loader_and_session_variables_go_unless_passed_by_name() {
    let caller = [
        ("LD_PRELOAD", "/x.so"),
        ("LD_LIBRARY_PATH", "/x"),
        ("GCONV_PATH", "/x"),
        ("GLIBC_TUNABLES", "x"),
        ("BASH_ENV", "/x"),
        ("SUDO_USER", "me"),
        ("SSH_AUTH_SOCK", "/x"),
        ("XDG_RUNTIME_DIR", "/x"),
        ("DBUS_SESSION_BUS_ADDRESS", "x"),
        ("TMUX", "/x,1,0"),
        ("LANG", "C.UTF-8"),
        ("ANTHROPIC_API_KEY", "k"),
        ("SECRET", "s"),
        ("HTTPS_PROXY", "http://mine:1"),
    ];
    let env = composed(Level::NonRoot, Layer::default(), &caller);
    let names: Vec<&str> = env.keys().map(String::as_str).collect();
    assert_eq!(names, ["ANTHROPIC_API_KEY", "HOME", "LANG", "LOGNAME", "PATH", "SECRET", "USER"]);
    assert_eq!((&*env["HOME"], &*env["USER"]), ("/home/agent", "agent"));

    let flags = Layer {
        env_pass: ["LD_PRELOAD", "HTTPS_PROXY", "ABSENT"].map(|name| name.parse().unwrap()).into(),
        env_drop: ["SECRET", "LD_PRELOAD"].map(|name| name.parse().unwrap()).into(),
        ..Layer::default()
    };
    let env = composed(Level::NistHigh, flags, &caller);
    assert_eq!(env["LD_PRELOAD"], "/x.so");
    assert_eq!(env["HTTPS_PROXY"], "http://mine:1");
    assert!(!env.contains_key("SECRET") && !env.contains_key("LD_LIBRARY_PATH") && !env.contains_key("ABSENT"));
}

#[test]
fn an_empty_start_keeps_only_what_is_passed() {
    let flags = Layer { clear_env: Some(true), env_pass: vec!["KEY".parse().unwrap()], ..Layer::default() };
    let env = composed(Level::NonRoot, flags, &[("KEY", "k"), ("LANG", "C"), ("PATH", "/x")]);
    assert_eq!(env.keys().map(String::as_str).collect::<Vec<_>>(), ["HOME", "KEY", "LOGNAME", "PATH", "USER"]);
    assert_eq!(env["PATH"], DEFAULT_PATH);
}

#[test]
fn control_passes_everything() {
    let env = composed(Level::Control, Layer::default(), &[("LD_PRELOAD", "/x"), ("http_proxy", "p"), ("HOME", "/h")]);
    assert_eq!(env.len(), 3);
    let flags = Layer { env_drop: vec!["HOME".parse().unwrap()], ..Layer::default() };
    assert!(!composed(Level::Control, flags, &[("HOME", "/h")]).contains_key("HOME"));
}

#[test]
fn a_callers_path_stays_where_it_is_writable_and_options_are_appended() {
    let caller = [
        ("CARGO_HOME", "/usr/local/cargo"),
        ("GOPATH", "/go"),
        ("npm_config_cache", "/tmp/npm"),
        ("GRADLE_USER_HOME", "/root/.gradle"),
        ("MAVEN_OPTS", "-Xmx1g"),
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "user.name"),
        ("GIT_CONFIG_VALUE_0", "x"),
        ("PIP_CACHE_DIR", "relative"),
    ];
    let env = composed(Level::NistHigh, Layer::default(), &caller);
    assert_eq!(env["CARGO_HOME"], "/home/agent/.cache/cargo");
    assert_eq!(env["GOPATH"], "/go");
    assert_eq!(env["npm_config_cache"], "/tmp/npm");
    assert_eq!(env["GRADLE_USER_HOME"], "/home/agent/.cache/gradle");
    assert!(env["MAVEN_OPTS"].starts_with("-Xmx1g -Dhttp.proxyHost=127.0.0.1 "), "{}", env["MAVEN_OPTS"]);
    assert!(
        env["MAVEN_OPTS"].ends_with(
            " -Dmaven.repo.local=/home/agent/.cache/maven -Dmaven.repo.local.tail=/home/agent/.m2/repository"
        )
    );
    assert_eq!((&*env["GIT_CONFIG_COUNT"], &*env["GIT_CONFIG_VALUE_0"]), ("1", "x"));
    assert_eq!(env["PIP_CACHE_DIR"], "relative");
}

#[test]
fn a_harness_brings_its_own() {
    let flags = Layer { harness: Some("claude-code".parse().unwrap()), ..Layer::default() };
    assert_eq!(composed(Level::NistHigh, flags.clone(), &[])["CLAUDE_CONFIG_DIR"], "/home/agent/.claude");
    let collected = [("CLAUDE_CONFIG_DIR", "/logs/agent")];
    assert_eq!(composed(Level::NistHigh, flags, &collected)["CLAUDE_CONFIG_DIR"], "/logs/agent");
}

#[test]
fn the_first_of_two_values_counts() {
    let env = composed(Level::NonRoot, Layer::default(), &[("A", "1"), ("A", "2")]);
    assert_eq!(env["A"], "1");
}

#[test]
fn the_data_is_filled_in_and_has_reasons() {
    let env = tool_environment("[::1]:3128".parse().unwrap(), Path::new("/h"), Path::new("/p"));
    for (name, value) in &env {
        assert!(!value.contains(['{', '}']), "{name}={value}");
    }
    let find = |name: &str| &env.iter().find(|(known, _)| known == name).unwrap().1;
    assert_eq!(find("http_proxy"), "http://[::1]:3128");
    assert_eq!(find("CLOUDSDK_PROXY_ADDRESS"), "::1");
    assert!(find("MAVEN_OPTS").contains("proxyPort=3128") && find("MAVEN_OPTS").contains("repo.local=/h/"));
    let reasons =
        TOOLS.variable.iter().map(|variable| &variable.reason).chain(TOOLS.file.iter().map(|file| &file.reason));
    for reason in reasons.chain(DROPPED.iter().map(|dropped| &dropped.reason)) {
        assert!(reason.ends_with('.') && reason.len() > 8, "{reason}");
    }
    let files = tool_files("127.0.0.1:3128".parse().unwrap());
    assert!(files[0].1.contains("https.proxyPort=3128\n") && !files[0].1.contains('{'));
}

#[test]
fn ssh_of_git_gets_its_way_only_where_there_is_one() {
    const VARIABLE: &str = "GIT_SSH_COMMAND";
    let with = |connector: Option<&str>, flags: Layer, caller: &[(&str, &str)]| {
        let env = composed_with(connector.map(Path::new), Level::NistHigh, flags, caller);
        env.get(VARIABLE).cloned()
    };
    let own = [(VARIABLE, "ssh -i key")];
    let option = "-o ProxyCommand='/opt/ringfence connect %h %p'";
    let program = Some("/opt/ringfence");
    assert_eq!(with(program, Layer::default(), &[]), Some(format!("ssh {option}")));
    assert_eq!(with(program, Layer::default(), &own), Some(format!("ssh -i key {option}")));
    assert_eq!(with(None, Layer::default(), &[]), None);
    assert_eq!(with(None, Layer::default(), &own), Some("ssh -i key".into()));
    let passed = Layer { env_pass: vec![VARIABLE.parse().unwrap()], ..Layer::default() };
    assert_eq!(with(program, passed.clone(), &own), Some("ssh -i key".into()));
    assert_eq!(with(program, passed, &[]), Some(format!("ssh {option}")));
}

/// As git and ssh read it: one shell, the tokens, another shell.
#[test]
fn a_program_of_any_name_is_one_word_to_the_second_shell() {
    let shell = |script: &str| {
        let ran = std::process::Command::new("sh").args(["-c", script]).output().unwrap();
        assert!(ran.status.success(), "{script}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    };
    for path in ["/opt/ringfence", "/a b/it's 100% \"x\" `id` $HOME;#", "/%h'", "/ü"] {
        let env = composed_with(Some(Path::new(path)), Level::NistHigh, Layer::default(), &[]);
        let option = shell(&format!("ssh() {{ printf %s \"$2\"; }}; {}", env["GIT_SSH_COMMAND"]));
        let command = option.strip_prefix("ProxyCommand=").unwrap();
        let filled = command.replace("%%", "\0").replace("%h", "HOST").replace("%p", "22").replace('\0', "%");
        assert_eq!(
            shell(&format!("for word in {filled}; do printf '%s\\n' \"$word\"; done")),
            format!("{path}\nconnect\nHOST\n22\n")
        );
    }
}

#[test]
fn only_the_documented_names_are_dropped() {
    for name in [
        "LD_AUDIT",
        "HTTP_PROXY",
        "Https_Proxy",
        "BASH_FUNC_x%%",
        "SUDO_UID",
        "NOTIFY_SOCKET",
        "ENV",
        "NPM_CONFIG_NOPROXY",
    ] {
        assert!(is_dropped(name), "{name}");
    }
    for name in
        ["PATH", "LANG", "LDFLAGS", "ld_preload", "ENVIRONMENT", "MY_ENV", "PROXY_MODE", "TERM", "AWS_REGION", ""]
    {
        assert!(!is_dropped(name), "{name}");
    }
    assert!(reason_dropped(OsStr::new("TMUX")).unwrap().contains("multiplexer"));
}

#[test]
fn no_variable_of_ours_would_be_dropped_if_it_were_the_callers() {
    for variable in &TOOLS.variable {
        assert!(variable.merge == Merge::Replace || !is_dropped(&variable.name), "{}", variable.name);
    }
}
