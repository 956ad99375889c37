//! Level `locked`: nothing is writable but the set, other homes and control sockets are out of reach, and egress goes to the
//! hosts that the policy names, or nowhere.

mod attempts;
mod common;

use attempts::{ATTEMPTS, fence, others, outcomes};
use common::{as_root, own_user};

#[test]
fn everything_is_read_only_but_the_set() {
    let fence = fence();
    let user = own_user();
    // Places that no tree of `restricted` holds, one of them on a mount of its own.
    let places = ["/userdata", "/mnt/disk", "/run/open", "/data/deep/open", "/usr/open"];
    let fill = places.map(|place| format!("install -d -o {user} -g {user} {place}; install -o {user} -g {user} /dev/null {place}/file; install -o {user} -g {user} /dev/null {place}/other"));
    as_root(&fence, &format!("mkdir -p /mnt/disk; mount -t tmpfs -o mode=755 disk /mnt/disk; {}", fill.join("; ")));
    let script: String = places.iter().map(|place| format!("{ATTEMPTS} change {place}; ")).collect();
    let flags = |level| ["--policy".to_owned(), level, "--user".to_owned(), format!("{user}:{user}")];
    let ended = fence.run(&flags("locked".to_owned()).each_ref().map(String::as_str), &script);
    assert_eq!(outcomes(&ended.said.out).len(), places.len() * 22, "{ended}");
    assert_eq!(others(&ended.said.out, "EROFS"), [("mmap-of-read-only", "EACCES"); 5], "{ended}");
    // The writable set is as everywhere, and /proc takes what a process says of itself.
    let script = "for place in /app /workspace /tmp /dev/shm ~/.cache ~/.config ~/.local; do echo x > $place/file && rm $place/file || echo $place; done
        echo name > /proc/self/comm && echo 500 > /proc/self/oom_score_adj; (echo x > ~/file) 2>&1 | grep -o 'Read-only.*'; echo x > /dev/null && echo null";
    let ended = fence.run(&flags("locked".to_owned()).each_ref().map(String::as_str), script);
    assert_eq!((ended.said.out.as_str(), ended.said.err.as_str()), ("Read-only file system\nnull\n", ""), "{ended}");
    // Under `nist-high` the same user writes where no tree is.
    let ended = fence
        .run(&flags("nist-high".to_owned()).each_ref().map(String::as_str), &format!("{ATTEMPTS} change /userdata"));
    assert_eq!(others(&ended.said.out, "ok"), [("mmap-of-read-only", "EACCES")], "{ended}");
}

#[test]
fn other_homes_and_control_sockets_are_masked() {
    let fence = fence();
    as_root(
        &fence,
        "chmod 0755 /root; echo secret > /root/open; chmod 0644 /root/open
         echo 'other:x:4321:4321::/home/other:/bin/sh' >> /etc/passwd; install -d -m 0755 -o 4321 /home/other; echo secret > /home/other/open",
    );
    let broker = "perl -MIO::Socket::UNIX -e '$| = 1; mkdir \"/run/dbus\"; for (@ARGV) { push @s, IO::Socket::UNIX->new(Local => $_, Listen => 1) or die; chmod 0666, $_ } print \"ready\\n\"; <STDIN>'";
    let sockets = "/run/docker.sock /run/dbus/system_bus_socket";
    let mut command = fence.world.command("bash");
    command
        .args(["-c", &format!("{broker} {sockets}")])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let mut child = fence.world.spawn(command).expect("the broker starts");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().expect("piped")), &mut line)
        .expect("a line");
    assert_eq!(line, "ready\n");
    let script = format!(
        "cat /root/open /home/other/open 2>/dev/null; perl -MIO::Socket::UNIX -e 'for (@ARGV) {{ print IO::Socket::UNIX->new(Peer => $_) ? \"$_ answers\\n\" : \"$_ $!\\n\" }}' {sockets} /run/../run/docker.sock
         echo mine > ~/.cache/file && cat ~/.cache/file"
    );
    let reached = "secret\nsecret\n/run/docker.sock answers\n/run/dbus/system_bus_socket answers\n/run/../run/docker.sock answers\nmine\n";
    let bus = "perl -MIO::Socket::UNIX -e 'print IO::Socket::UNIX->new(Peer => \"/run/dbus/system_bus_socket\") ? \"answers\" : $!'";
    assert_eq!(fence.as_nobody(bus).out, "answers", "live without ringfence");
    let ended = fence.run(&["--policy", "nist-high"], &script);
    // The bus resolves names, which leave by the proxy alone.
    let reached = reached.replace("system_bus_socket answers", "system_bus_socket Permission denied");
    assert_eq!(ended.said.out, reached, "reads stay open below: {ended}");
    let ended = fence.run(&["--policy", "locked"], &script);
    let refused = "/run/docker.sock Permission denied\n/run/dbus/system_bus_socket Permission denied\n/run/../run/docker.sock Permission denied\nmine\n";
    assert_eq!(ended.said.out, refused, "{ended}");
    drop(child.stdin.take());
    child.wait().expect("wait");
}

#[test]
fn egress_goes_to_named_hosts_or_nowhere() {
    let fence = fence();
    let script = "for host in pypi.org api.anthropic.com stranger.example.org; do
            echo $host $(curl -s -o /dev/null -w '%{http_connect} %{http_code}' -m 10 http://$host/) $?; done
        curl -s -o /dev/null -m 5 --noproxy '*' http://11.22.33.44/; echo direct $?";
    let answers = |flags: &[&str]| {
        let ended = fence.run(&[&["--policy", "locked"], flags].concat(), script);
        (ended.said.out.clone(), ended)
    };
    // Named by the policy, by nothing at all, and by the harness.
    let (out, ended) = answers(&["--allow-host", "stranger.example.org"]);
    assert!(
        out.contains("pypi.org 000 403 0\napi.anthropic.com 000 403 0\nstranger.example.org 000 200 0\n"),
        "{ended}"
    );
    let (out, ended) = answers(&[]);
    assert!(out.lines().take(3).all(|line| line.ends_with(" 000 403 0") || line.ends_with("7")), "{ended}");
    assert!(!out.contains("200"), "{ended}");
    assert!(out.ends_with("direct 7\n"), "{ended}");
    let (out, ended) = answers(&["--harness", "claude-code"]);
    assert!(out.contains("pypi.org 000 403 0\n") && !out.contains("api.anthropic.com 000 403"), "{ended}");
    // Without it pypi.org is served.
    let ended = fence.run(&["--policy", "nist-high"], script);
    assert!(ended.said.out.contains("pypi.org 000 200 0\n"), "{ended}");
}
