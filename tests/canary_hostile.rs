//! `ringfence canary scan` over what was made to hide a token from it, to lead it elsewhere, or to wear it out.

#[allow(dead_code, reason = "each user has its own part")]
mod canary;

use canary::*;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// A user of this test alone: how many processes one may have is counted by user.
const LONELY: u32 = 54_321;

fn whys(lines: &[Value]) -> Vec<(&str, &str)> {
    of_kind(lines, "unread").iter().map(|line| (name(line), line["why"].as_str().unwrap())).collect()
}

fn hits(lines: &[Value]) -> Vec<(&str, &str)> {
    of_kind(lines, "hit").iter().map(|hit| (name(hit), hit["within"][0].as_str().unwrap_or_default())).collect()
}

#[test]
fn a_hundred_thousand_members_are_counted_and_few_listed() {
    let run = Run::new();
    let many = r#"
import io, struct, sys, tarfile, zlib
dir, token = sys.argv[1], sys.argv[2]
def local(method, data): return struct.pack('<4sHHHHHIIIHH', b'PK\3\4', 20, 0, method, 0, 0, 0, len(data), len(data), 1, 0) + b'n' + data
open(dir + '/unread.zip', 'wb').write(local(99, b'') * 100000 + b'PK\5\6' + b'\0' * 18)
open(dir + '/hits.zip', 'wb').write(local(0, token.encode()) * 1000 + b'PK\5\6' + b'\0' * 18)
info = tarfile.TarInfo('d/' * 100000 + 'x'); info.size = len(token)
with tarfile.open(dir + '/long.tar', 'w', format=tarfile.PAX_FORMAT) as archive: archive.addfile(info, io.BytesIO(token.encode()))
"#;
    python(many, &[text(&run.at("")), &run.token]);
    let (lines, status) = run.scan(&[]);
    assert_eq!(status, 1);
    let more: Vec<(&str, u64, u64)> = of_kind(&lines, "more")
        .iter()
        .map(|line| (name(line), line["hits"].as_u64().unwrap(), line["unread"].as_u64().unwrap()))
        .collect();
    assert_eq!(more, [("hits.zip", 1000 - 64, 0), ("unread.zip", 0, 100_000 - 64)]);
    let summary = of_kind(&lines, "summary")[0];
    let count = |field: &str| summary[field].as_u64().unwrap();
    assert_eq!((count("hits"), count("unread"), count("unlisted")), (1001, 100_000, 936 + 99_936));
    let long = of_kind(&lines, "hit").into_iter().find(|hit| name(hit) == "long.tar").unwrap();
    let within = long["within"][0].as_str().unwrap();
    assert!(within.starts_with("d/d/") && within.len() < 4200, "{}", within.len());
}

#[test]
fn what_zlib_data_does_not_give_is_told() {
    let run = Run::new();
    let pack = r#"
import os, sys, zlib
dir, token = sys.argv[1], sys.argv[2].encode()
def put(name, data): open(dir + '/' + name, 'wb').write(data)
put('bomb', zlib.compress(b'\0' * (20 << 20)))
whole = zlib.compress(token + os.urandom(1 << 20))
put('cut', whole[:1 << 19])
wrong = bytearray(zlib.compress(token)); wrong[-1] ^= 1
put('wrong', bytes(wrong))
deep = token
for n in range(12): deep = zlib.compress(deep, 9 if n % 2 else 0)
put('deep', deep)
put('text', b'x^2 + y^2 = z^2\n')
put('short', b'x^')
"#;
    python(pack, &[text(&run.at("")), &run.token]);
    let (lines, status) = run.scan(&["--unpack-limit", "8"]);
    let expected = [
        ("bomb", "more than 8388608 bytes come out of it"),
        ("cut", "its zlib data is damaged or cut short"),
        ("deep", "it is packed more than 8 deep"),
        ("wrong", "its zlib data is damaged or cut short"),
    ];
    let found = whys(&lines);
    assert!(
        found.len() == expected.len()
            && found.iter().zip(expected).all(|(found, wanted)| found.0 == wanted.0 && found.1.starts_with(wanted.1)),
        "{found:?}"
    );
    // What came out before the damage is searched.
    assert_eq!(hits(&lines), [("cut", "content"), ("wrong", "content")]);
    assert_eq!(status, 1);
    for hit in ["cut", "wrong"] {
        fs::remove_file(run.at(hit)).unwrap();
    }
    assert_eq!(run.scan(&["--unpack-limit", "8"]).1, 2);
}

#[test]
fn archives_that_are_read_in_two_ways_are_read_in_both() {
    let run = Run::new();
    let pack = r#"
import gzip, io, struct, sys, tarfile, zipfile, zlib
dir, token = sys.argv[1], sys.argv[2].encode()
text = b'before ' * 1000 + token + b' after' * 1000
def put(name, data): open(dir + '/' + name, 'wb').write(data)
def local(name, data, flags=0, descriptor=b''):
    packed = zlib.compress(data)[2:-4]
    head = struct.pack('<4sHHHHHIIIHH', b'PK\3\4', 20, flags, 8, 0, 0, zlib.crc32(data), len(packed), len(data), len(name), 0)
    sizes = struct.pack('<III', zlib.crc32(data), len(packed), len(data))
    return head + name + packed + {b'': b'', b's': b'PK\7\x08' + sizes, b'p': sizes}[descriptor]
end = b'PK\5\6' + b'\0' * 18
directory = b'PK\1\2' + b'\0' * 42
put('described.zip', local(b'one', b'1' * 99, 8, b's') + local(b'two', text, 8, b's') + end)
put('plain.zip', local(b'one', b'1' * 99, 8, b'p') + local(b'two', text, 8, b'p') + end)
put('left-out.zip', local(b'one', b'1' * 99, 8) + local(b'two', text, 8) + end)
put('after.zip', local(b'one', b'1' * 99) + directory + local(b'two', text) + end)
put('joined.zip', local(b'one', b'1') + end + b'PPK' + local(b'two', text) + end)
def tar(name, data):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w') as archive:
        info = tarfile.TarInfo(name); info.size = len(data); archive.addfile(info, io.BytesIO(data))
    return out.getvalue()
put('joined.tar', tar('one', b'1') + tar('two', gzip.compress(text)))
put('trailing.tar', tar('two', gzip.compress(text)) + b'trailing')
"#;
    python(pack, &[text(&run.at("")), &run.token]);
    let (lines, status) = run.scan(&[]);
    let names = ["after.zip", "described.zip", "joined.tar", "joined.zip", "left-out.zip", "plain.zip", "trailing.tar"];
    assert_eq!(hits(&lines), names.map(|name| (name, "two")), "{lines:?}");
    assert_eq!((whys(&lines), status), (vec![], 1));
}

#[test]
fn many_small_bombs_come_to_an_end_together() {
    let run = Run::new();
    let bombs = "import gzip, sys\nfor n in range(8): open(f'{sys.argv[1]}/{n}.gz', 'wb').write(gzip.compress(b'\\0' * (4 << 20)))";
    python(bombs, &[text(&run.at(""))]);
    assert_eq!(run.scan(&["--unpack-total", "64"]).1, 0);
    let (lines, status) = run.scan(&["--unpack-total", "8"]);
    let found = whys(&lines);
    assert!((5..8).contains(&found.len()), "{found:?}");
    let why = "more than 8388608 bytes come out of all files together: the rest is not unpacked";
    assert!(found.iter().all(|(_, told)| *told == why), "{found:?}");
    assert_eq!(status, 2);
}

#[test]
fn a_deep_and_wide_tree_needs_few_descriptors() {
    let run = Run::new();
    let mut depth = String::new();
    for _ in 0..50 {
        depth.push_str("d/");
        for file in 0..70 {
            run.write(&format!("{depth}{file}"), "x");
        }
    }
    for wide in 0..200 {
        run.write(&format!("{depth}w{wide}/x"), "x");
    }
    run.write(&format!("{depth}last"), &run.token);
    let limited =
        format!("ulimit -n 40; exec {} canary scan --json --token \"$0\" \"$1\"", canary::tested::binary().display());
    let output = Command::new("sh").args(["-c", &limited, &run.token]).arg(run.at("")).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let summary: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&summary["files"], &summary["hits"], &summary["unread"]),
        (&(50 * 70 + 200 + 1).into(), &1.into(), &0.into())
    );
}

#[test]
fn where_no_thread_can_be_had_one_does_it_all() {
    let run = Run::new();
    let mut large = vec![b'.'; 40 << 20];
    large.extend_from_slice(run.token.as_bytes());
    run.write("large", &large);
    run.write("small", &run.token);
    fs::set_permissions(run.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = run.dir.path().join("ringfence");
    fs::copy(canary::tested::binary(), &program).unwrap();
    // One process, and no thread beside it.
    let alone = "import os, resource, sys\nresource.setrlimit(resource.RLIMIT_NPROC, (1, 1))\nos.setgid(int(sys.argv[1]))\nos.setuid(int(sys.argv[1]))\n\
                 import threading\ntry: threading.Thread(target=print).start(); print('THREADS')\nexcept RuntimeError: pass\n\
                 os.execv(sys.argv[2], sys.argv[2:])";
    let arguments = ["canary", "scan", "--json", "--token", &run.token];
    let mut command = Command::new("python3");
    command.args(["-c", alone, &LONELY.to_string()]).arg(&program).args(arguments).arg(run.at(""));
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!said.contains("THREADS"), "the limit does not hold");
    assert_eq!(output.status.code(), Some(1), "{said} {}", String::from_utf8_lossy(&output.stderr));
    let summary: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(summary["hits"], 2, "{said}");
}

#[test]
fn a_directory_that_turns_into_a_link_leads_nowhere() {
    let run = Run::new();
    let outside = run.dir.path().join("outside");
    for dir in [run.at("swapped"), outside.clone()] {
        fs::create_dir_all(dir.join("deep")).unwrap();
    }
    fs::write(run.at("swapped/deep/x"), "nothing").unwrap();
    fs::write(outside.join("deep/x"), &run.token).unwrap();
    let link = run.dir.path().join("link");
    symlink(&outside, &link).unwrap();
    let ended = AtomicBool::new(false);
    let swap = || renameat2(AT_FDCWD, &link, AT_FDCWD, &run.at("").join("swapped"), RenameFlags::RENAME_EXCHANGE);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                swap().unwrap();
            }
        });
        for _ in 0..100 {
            let (lines, status) = run.scan(&[]);
            if status == 1 {
                ended.store(true, Ordering::Relaxed);
                panic!("{lines:?}");
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    // What is changed under a search is told.
    fs::remove_dir_all(run.at("swapped")).ok();
    let large = run.at("grows");
    fs::write(&large, vec![b'.'; 64 << 20]).unwrap();
    let ended = AtomicBool::new(false);
    let (lines, status) = thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                fs::set_permissions(&large, fs::Permissions::from_mode(0o600)).unwrap();
            }
        });
        let scanned = run.scan(&[]);
        ended.store(true, Ordering::Relaxed);
        scanned
    });
    assert_eq!((whys(&lines), status), (vec![("grows", "it was changed while it was read")], 2));
}

#[test]
fn no_name_steers_the_terminal_that_shows_the_json() {
    let run = Run::new();
    let odd = "a\u{9b}31m\u{202e}b\u{7f}";
    run.write(odd, &run.token);
    let output = canary(&["scan", "--json", "--token", &run.token, text(&run.at(""))]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!said.contains(['\u{9b}', '\u{202e}', '\u{7f}']), "{said}");
    let hit: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    assert_eq!(name(&hit), odd);
}
