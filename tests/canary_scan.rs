//! `ringfence canary scan`: what is found, where, what it means, and what is not passed over in silence.

#[allow(dead_code, reason = "each user has its own part")]
mod canary;

use canary::*;
use serde_json::{Value, json as value};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

const PACK: &str = r#"
import bz2, gzip, io, lzma, sys, tarfile, zipfile, zlib
dir, token = sys.argv[1], sys.argv[2].encode()
text = b'before ' * 1000 + token + b' after' * 1000
def put(name, data): open(dir + '/' + name, 'wb').write(data)
def tar(files, mode='w', **more):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, **more) as archive:
        for name, data in files:
            info = tarfile.TarInfo(name); info.size = len(data); archive.addfile(info, io.BytesIO(data))
    return out.getvalue()
def zipped(files, method):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w', method) as archive:
        for name, data in files: archive.writestr(name, data)
    return out.getvalue()
class Pipe(io.RawIOBase):
    def __init__(self): self.data = b''
    def writable(self): return True
    def write(self, data): self.data += bytes(data); return len(data)
def streamed(files):
    out = Pipe()
    with zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED) as archive:
        for name, data in files: archive.writestr(name, data)
    return out.data
put('a.gz', gzip.compress(text))
put('two.gz', gzip.compress(b'first ' + token[:20]) + gzip.compress(token[20:]) + b'\0' * 100)
put('a.zlib', zlib.compress(text))
put('a.bz2', bz2.compress(text))
put('a.xz', lzma.compress(text))
put('plain.tar', tar([('one', b'1'), ('deep/two', text), ('three', b'3')]))
put('long.tar', tar([('d/' * 80 + 'two', text)], format=tarfile.GNU_FORMAT))
put('pax.tar', tar([('d/' * 80 + 'two', text)], format=tarfile.PAX_FORMAT))
put('a.tar.gz', tar([('one', b'1'), ('two', text)], mode='w:gz'))
put('deflated.zip', zipped([('one', b'1'), ('two', text)], zipfile.ZIP_DEFLATED))
put('stored.zip', zipped([('one', b'1'), ('two', text)], zipfile.ZIP_STORED))
put('streamed.zip', streamed([('one', b'1' * 99), ('two', text)]))
put('nested.zip', zipped([('in.tar.gz', tar([('x.gz', gzip.compress(text))], mode='w:gz'))], zipfile.ZIP_DEFLATED))
put('utf16.gz', gzip.compress(text.decode().encode('utf-16')))
"#;

#[test]
fn a_token_is_found_in_each_container_at_its_place() {
    let run = Run::new();
    python(PACK, &[text(&run.at("")), &run.token]);
    let zstd = ruzstd::encoding::compress_to_vec(run.token.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
    run.write("a.zst", zstd);
    let (lines, status) = run.scan(&[]);
    let mut hits: Vec<(&str, String, &str)> = of_kind(&lines, "hit")
        .into_iter()
        .map(|hit| {
            let within: Vec<&str> =
                hit["within"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
            (name(hit), within.join("!"), hit["encoding"].as_str().unwrap())
        })
        .collect();
    hits.sort_unstable();
    let long = format!("{}two", "d/".repeat(80));
    let expected: Vec<(&str, String, &str)> = [
        ("a.bz2", "a", "literal"),
        ("a.gz", "a", "literal"),
        ("a.tar.gz", "a.tar!two", "literal"),
        ("a.xz", "a", "literal"),
        ("a.zlib", "content", "literal"),
        ("a.zst", "a", "literal"),
        ("deflated.zip", "two", "literal"),
        ("long.tar", &long, "literal"),
        ("nested.zip", "in.tar.gz!in.tar!x.gz!x", "literal"),
        ("pax.tar", &long, "literal"),
        ("plain.tar", "deep/two", "literal"),
        ("stored.zip", "two", "literal"),
        ("streamed.zip", "two", "literal"),
        ("two.gz", "two", "literal"),
        ("utf16.gz", "utf16", "utf-16"),
    ]
    .map(|(file, within, encoding)| (file, within.to_owned(), encoding))
    .to_vec();
    assert_eq!(hits, expected);
    assert_eq!((of_kind(&lines, "unread").len(), status), (0, 1), "{lines:?}");
    // Another token is in none of them.
    let other = run.token.replace(&run.token[20..24], "wxyz");
    let (lines, status) = json(&["scan", "--json", "--token", &other, text(&run.at(""))]);
    assert_eq!((of_kind(&lines, "hit").len(), status), (0, 0));
}

#[test]
fn git_objects_are_read_loose_and_packed() {
    let run = Run::new();
    let repository = run.at("repo/.git").parent().unwrap().to_owned();
    let git = |arguments: &[&str]| {
        let who = ["-c", "user.name=x", "-c", "user.email=x@y.test"];
        let done = Command::new("git").args(who).args(arguments).current_dir(&repository).output().unwrap();
        assert!(done.status.success(), "{arguments:?} {}", String::from_utf8_lossy(&done.stderr));
    };
    git(&["init", "-q", "."]);
    run.write("repo/a", format!("{}\n{}\n", "line\n".repeat(500), run.token));
    git(&["add", "a"]);
    git(&["commit", "-qm", "a"]);
    fs::remove_file(run.at("repo/a")).unwrap();
    let within = |lines: &[Value]| {
        of_kind(lines, "hit").iter().map(|hit| hit["within"][0].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (lines, status) = run.scan(&[]);
    assert_eq!((within(&lines), status), (vec!["content".to_owned()], 1));
    git(&["gc", "-q"]);
    let (lines, status) = run.scan(&[]);
    assert_eq!((within(&lines).len(), status), (1, 1), "{lines:?}");
    assert!(within(&lines)[0].starts_with("object "), "{lines:?}");
}

#[test]
fn a_hit_is_classed_and_the_status_says_what_was_found() {
    let run = Run::new();
    run.write("results.json", "{}");
    assert_eq!(run.scan(&[]).1, 0);

    run.write("agent/log.txt", &run.token);
    run.write("sessions/1.jsonl", format!("{{\"type\":\"assistant\",\"text\":\"{}\"}}\n", run.token));
    run.write("verifier/report.txt", &run.token);
    run.write("results.json", &run.token);
    let (lines, status) = run.scan(&[]);
    let classes: Vec<(&str, &str)> =
        of_kind(&lines, "hit").iter().map(|hit| (name(hit), hit["class"].as_str().unwrap())).collect();
    let expected = [
        ("log.txt", "transcript"),
        ("results.json", "artifact"),
        ("1.jsonl", "transcript"),
        ("report.txt", "artifact"),
    ];
    assert_eq!((classes, status), (expected.to_vec(), 1));
    let summary = of_kind(&lines, "summary")[0];
    assert_eq!(
        (&summary["transcript"], &summary["artifact"], &summary["complete"]),
        (&value!(2), &value!(2), &value!(true))
    );

    let (lines, _) = run.scan(&["--transcript", "results.*", "--exclude", "*/verifier"]);
    let classes: Vec<(&str, &str)> =
        of_kind(&lines, "hit").iter().map(|hit| (name(hit), hit["class"].as_str().unwrap())).collect();
    assert_eq!(classes, [("log.txt", "artifact"), ("results.json", "transcript"), ("1.jsonl", "artifact")]);

    // What stands above the directory says nothing.
    let home = run.at("home/agent/verifier/job/results.txt");
    fs::write(&home, &run.token).unwrap();
    for (name, class) in [("home/agent/verifier/job", "artifact"), ("home/agent", "artifact"), ("agent", "transcript")]
    {
        let (lines, _) = json(&["scan", "--json", "--token", &run.token, text(&run.at(name))]);
        assert_eq!(of_kind(&lines, "hit")[0]["class"], class, "{name}");
    }

    for (wrong, expected) in [
        (vec!["scan", "/tmp"], "no token is given"),
        (vec!["scan", "--token", "short", "/tmp"], "\"short\" is no token"),
        (vec!["scan", "--pattern", "a.*", "/tmp"], "\"a.*\" is no pattern"),
        (vec!["scan", "--tokens", "/etc/passwd", "/tmp"], "line 1: it is not the first line of a tokens file"),
        (vec!["scan", "--token", "long enough", "/tmp"], "is no token"),
    ] {
        let output = canary(&wrong);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected) && said.lines().count() == 1, "{said}");
        assert_eq!(output.status.code(), Some(125), "{wrong:?}");
    }
}

#[test]
fn what_cannot_be_read_is_told() {
    let run = Run::new();
    run.write("fine", "x");
    run.write("closed/x", "x");
    run.write("secret", "x");
    for closed in ["closed", "secret"] {
        fs::set_permissions(run.at(closed), fs::Permissions::from_mode(0o000)).unwrap();
    }
    fs::set_permissions(run.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = run.dir.path().join("ringfence");
    fs::copy(canary::tested::binary(), &program).unwrap();
    let scan = || {
        let arguments = ["canary", "scan", "--json", "--token", &run.token];
        let output = Command::new(&program).args(arguments).arg(run.at("")).uid(65534).gid(65534).output().unwrap();
        let lines: Vec<Value> =
            String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let unread: Vec<String> = of_kind(&lines, "unread").iter().map(|line| name(line).to_owned()).collect();
        (unread, output.status.code())
    };
    assert_eq!(scan(), (vec!["closed".to_owned(), "secret".to_owned()], Some(2)));
    run.write("fine", &run.token);
    assert_eq!(scan().1, Some(1), "a hit counts for more");
    let (lines, status) = run.scan(&[text(&run.at("nowhere"))]);
    assert_eq!((of_kind(&lines, "unread").len(), status), (1, 1));
}

#[test]
fn a_damaged_container_is_told_and_hides_nothing_that_stands_in_plain() {
    let run = Run::new();
    let starts: [(&str, &[u8]); 7] = [
        ("gz", b"\x1f\x8b\x08\0\0\0\0\0\0\0"),
        ("zst", b"\x28\xb5\x2f\xfd"),
        ("xz", b"\xfd7zXZ\0"),
        ("bz2", b"BZh91AY&SY"),
        ("zip", b"PK\x03\x04"),
        ("pack", b"PACK\0\0\0\x02\0\0\0\x01"),
        ("7z", b"7z\xbc\xaf\x27\x1c"),
    ];
    for (name, start) in starts {
        run.write(&format!("x.{name}"), [start, b"\xff\xff nothing "].concat());
    }
    let (lines, status) = run.scan(&[]);
    assert_eq!((of_kind(&lines, "unread").len(), status), (starts.len(), 2), "{lines:?}");
    for (name, start) in starts {
        run.write(&format!("x.{name}"), [start, b"\xff\xff plain ", run.token.as_bytes()].concat());
    }
    // Text that begins as zlib data does is no container at all.
    run.write("x.txt", format!("x^2 {}", run.token));
    let (lines, status) = run.scan(&[]);
    assert_eq!(
        (of_kind(&lines, "hit").len(), of_kind(&lines, "unread").len(), status),
        (starts.len() + 1, starts.len(), 1),
        "{lines:?}"
    );
}

#[test]
fn a_bomb_neither_hangs_nor_passes() {
    let run = Run::new();
    let bombs = r#"
import gzip, io, sys, zipfile
dir = sys.argv[1]
big = gzip.compress(b'\0' * (200 << 20), 1)
open(dir + '/a.gz', 'wb').write(big)
def zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED) as archive:
        for name, data in files: archive.writestr(name, data)
    return out.getvalue()
open(dir + '/many.zip', 'wb').write(zipped([(f'{n}.gz', big) for n in range(20)]))
deep = b'x'
for n in range(40): deep = gzip.compress(deep)
open(dir + '/deep.gz', 'wb').write(deep)
"#;
    python(bombs, &[text(&run.at(""))]);
    let sparse = File::create(run.at("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    let begun = Instant::now();
    let (lines, status) = run.scan(&["--unpack-limit", "8"]);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let unread: Vec<(&str, &str)> =
        of_kind(&lines, "unread").iter().map(|line| (name(line), line["why"].as_str().unwrap())).collect();
    let limit = "more than 8388608 bytes come out of it: the rest is not unpacked";
    assert_eq!(unread, [("a.gz", limit), ("deep.gz", "it is packed more than 8 deep"), ("many.zip", limit)]);
    assert_eq!(status, 2);
}

#[test]
fn a_large_file_is_searched_in_parts_and_each_token_told_once() {
    let run = Run::new();
    let cores = std::thread::available_parallelism().unwrap().get();
    let mut text = vec![b'.'; 40 << 20];
    // At the beginning, at the end, and across every border between two parts.
    let length = run.token.len();
    let mut places: Vec<usize> = (1..cores).map(|part| text.len() / cores * part - length / 2).collect();
    places.extend([0, text.len() - length]);
    for place in &places {
        text[*place..place + length].copy_from_slice(run.token.as_bytes());
    }
    run.write("large", &text);
    let (lines, _) = run.scan(&[]);
    let hits = of_kind(&lines, "hit");
    assert_eq!(
        (hits.len(), &hits[0]["count"], &hits[0]["offset"]),
        (1, &value!(places.len()), &value!(0)),
        "{lines:?}"
    );
    assert_eq!(of_kind(&lines, "summary")[0]["bytes"], text.len());
}

#[test]
fn holes_are_passed_over_and_what_follows_them_is_found() {
    let run = Run::new();
    let mut sparse = File::create(run.at("sparse")).unwrap();
    sparse.write_all(run.token.as_bytes()).unwrap();
    sparse.seek(SeekFrom::Start(1 << 40)).unwrap();
    sparse.write_all(run.token.as_bytes()).unwrap();
    let (lines, status) = run.scan(&[]);
    assert_eq!((&of_kind(&lines, "hit")[0]["count"], status), (&value!(2), 1), "{lines:?}");
}

#[test]
fn nothing_is_followed_and_nothing_is_waited_for() {
    let run = Run::new();
    let outside = run.dir.path().join("outside");
    fs::write(&outside, &run.token).unwrap();
    symlink(&outside, run.at("link")).unwrap();
    symlink(".", run.at("loop")).unwrap();
    nix::unistd::mkfifo(&run.at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(run.at("socket")).unwrap();
    assert_eq!(run.scan(&[]).1, 0);
    // The same file by its own name is read.
    assert_eq!(run.scan(&[text(&outside)]).1, 1);
}

#[test]
fn names_and_targets_of_links_are_read_too() {
    let run = Run::new();
    run.write(&format!("d/{}.txt", run.token), "x");
    symlink(format!("/nowhere/{}", run.token), run.at("link")).unwrap();
    fs::create_dir(run.at(&format!("dir-{}", run.token.chars().rev().collect::<String>()))).unwrap();
    let (lines, status) = run.scan(&[]);
    let hits: Vec<(&Value, &Value)> = of_kind(&lines, "hit").iter().map(|hit| (&hit["in"], &hit["encoding"])).collect();
    assert_eq!((hits.len(), status), (3, 1), "{lines:?}");
    assert!(hits.iter().all(|(place, _)| *place == "name"), "{lines:?}");
}

#[test]
fn what_is_ours_is_no_hit() {
    let run = Run::new();
    run.write("planted/a.py", "x = 1\n");
    run.write("planted/b.json", "{}\n");
    let tokens = run.at("tokens");
    let (planted, _) = json(&["plant", "--json", "--tokens", text(&tokens), text(&run.at("planted"))]);
    let patterns: Vec<&str> = planted.iter().map(|line| line["pattern"].as_str().unwrap()).collect();
    run.write("task.yaml", format!("pattern: \"{}\"\n", patterns.join("|")));
    let scan = || json(&["scan", "--json", "--tokens", text(&tokens), text(&run.at(""))]);
    let (lines, status) = scan();
    assert_eq!(status, 0, "{lines:?}");
    let skipped: Vec<&str> = of_kind(&lines, "skipped").iter().map(|line| name(line)).collect();
    assert_eq!(skipped, ["a.py", "b.json.canary", "tokens"]);

    // A copy is one, of the tokens file as well: who could make it has read them.
    fs::copy(run.at("planted/a.py"), run.at("copy.py")).unwrap();
    fs::copy(&tokens, run.at("tokens-copy")).unwrap();
    let (lines, status) = scan();
    let hits: Vec<&str> = of_kind(&lines, "hit").iter().map(|hit| name(hit)).collect();
    assert_eq!((hits, status), (vec!["copy.py", "tokens-copy", "tokens-copy"], 1));
    assert_eq!(of_kind(&lines, "hit")[0]["planted"], text(&run.at("planted/a.py")));
    fs::remove_file(run.at("copy.py")).unwrap();
    fs::remove_file(run.at("tokens-copy")).unwrap();

    // Nor does what a search says plant anything.
    fs::copy(run.at("planted/a.py"), run.dir.path().join("copy.py")).unwrap();
    for form in [&["--json"][..], &[]] {
        let copy = run.dir.path().join("copy.py");
        let output = canary(&[&["scan", "--tokens", text(&tokens), text(&copy)], form].concat());
        assert_eq!(output.status.code(), Some(1));
        run.write("scan.out", &output.stdout);
        assert_eq!(scan().1, 0, "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn the_text_form_says_where_what_and_how() {
    let run = Run::new();
    run.write("agent/a\u{1b}[31m.txt", format!("{0} {0}", run.token));
    let output = canary(&["scan", "--token", &run.token, text(&run.at(""))]);
    let said = String::from_utf8(output.stdout).unwrap();
    let (first, second) = said.split_once('\n').unwrap();
    assert!(first.starts_with("transcript ") && first.contains("agent/a\\x1b[31m.txt: "), "{said}");
    assert!(first.ends_with(&format!("{}: literal, at byte 0, 2 times", run.pattern)), "{said}");
    assert!(second.starts_with("1 hits, 1 in transcripts and 0 in artifacts, of 1 tokens in 1 files"), "{said}");
}
