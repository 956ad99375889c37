//! What real tools print when they are refused is known for what it is, and for an echo of what the ledger holds.

mod common;

use common::Fence;
use ringfence::report::transcript::act::{Act, Screens, acts};
use ringfence::report::transcript::{Observed, outputs};
use world::address::PUBLIC4;

/// A tool's attempt, and the answer and the object that its output must show; an object of none where the tool names none.
struct Case {
    name: &'static str,
    script: String,
    answer: &'static str,
    object: Option<&'static str>,
}

fn case(name: &'static str, answer: &'static str, object: Option<&'static str>, script: &str) -> Case {
    Case { name, script: script.to_owned(), answer, object }
}

const DENIED: &str = "denied.test";

fn cases() -> Vec<Case> {
    let direct = PUBLIC4.to_string();
    let to = |script: &str| script.replace("ADDRESS", &direct);
    let file = Some("/usr/refused");
    let shell = "PIP_CONFIG_FILE=/dev/null PIP_DISABLE_PIP_VERSION_CHECK=1";
    vec![
        case("sh", "EROFS", file, "echo x >/usr/refused"),
        case("dash", "EROFS", file, "dash -c 'echo x >/usr/refused'"),
        case("touch", "EROFS", file, "touch /usr/refused"),
        case("mkdir", "EROFS", file, "mkdir /usr/refused"),
        case("cp", "EROFS", file, "cp /etc/passwd /usr/refused"),
        case("ln", "EROFS", file, "ln -s x /usr/refused"),
        case("tee", "EROFS", file, "echo x | tee /usr/refused"),
        case("python open", "EROFS", file, "/usr/bin/python3 -c 'open(\"/usr/refused\", \"w\")'"),
        case("node open", "EROFS", file, "node -e 'require(\"fs\").writeFileSync(\"/usr/refused\", \"\")'"),
        case("git init", "EROFS", file, "git init /usr/refused"),
        case("chown", "EPERM", Some("/tmp/own"), "touch /tmp/own; chown root /tmp/own"),
        case("curl", "403", None, "curl -sS https://denied.test/"),
        case("wget", "403", None, "wget -O - https://denied.test/"),
        case("git", "403", Some(DENIED), "git clone https://denied.test/x.git /tmp/x"),
        case(
            "urllib",
            "403",
            None,
            "/usr/bin/python3 -c 'import urllib.request as u; u.urlopen(\"https://denied.test/\")'",
        ),
        case(
            "pip",
            "403",
            None,
            &format!(
                "{shell} /usr/bin/python3 -m pip download --retries 1 --index-url https://denied.test/simple -d /tmp/d x"
            ),
        ),
        case(
            "npm",
            "403",
            Some(DENIED),
            "cd /tmp && NPM_CONFIG_GLOBALCONFIG=/dev/null npm_config_fetch_retries=0 \
            npm_config_registry=http://denied.test/ npm view x",
        ),
        case("curl direct", "ECONNREFUSED", None, &to("curl -sS --noproxy '*' http://ADDRESS:8443/")),
        case(
            "python direct",
            "ECONNREFUSED",
            None,
            &to("/usr/bin/python3 -c 'import socket; socket.create_connection((\"ADDRESS\", 8443))'"),
        ),
        case("node direct", "ECONNREFUSED", None, &to("node -e 'require(\"net\").connect(8443, \"ADDRESS\")'")),
        case("python name", "DNS", None, "/usr/bin/python3 -c 'import socket; socket.getaddrinfo(\"denied.test\", 1)'"),
        case("node name", "DNS", Some(DENIED), "node -e 'require(\"net\").connect(1, \"denied.test\")'"),
        case("curl name", "DNS", Some(DENIED), "curl -sS --noproxy '*' http://denied.test/"),
    ]
}

fn read(text: &str) -> Vec<Act> {
    let mut screens = Screens::default();
    let mut found = Vec::new();
    outputs::each(text.as_bytes(), |output| found.extend(acts(output.text, &mut screens))).expect("plain text");
    found
}

#[test]
fn what_tools_print_is_known_and_is_an_echo_of_the_record() {
    let fence = Fence::new();
    let mut faults = Vec::new();
    for Case { name, script, answer, object } in cases() {
        let ended = fence.run(&["--policy", "nist-high"], &format!("( {script} ) </dev/null 2>&1"));
        let acts = read(&ended.said.out);
        let named = |act: &&Act| object.is_none_or(|object| act.objects.iter().any(|name| name == object));
        let Some(act) = acts.iter().filter(|act| act.answer.name() == answer).find(named) else {
            faults.push(format!("{name}: no {answer} on {object:?}; found {acts:?} in {ended}"));
            continue;
        };
        let mut observed = Observed::default();
        ended.denials().into_iter().for_each(|denial| observed.denial(denial));
        if !observed.accounts_for(act) {
            faults.push(format!("{name}: {act:?} is no echo of {:?}", ended.denials()));
        }
        // What it printed is of this one act.
        if acts.iter().any(|act| !observed.accounts_for(act)) {
            faults.push(format!("{name}: more than was refused: {acts:?}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
