use super::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::os::unix::fs::symlink;

fn packed(text: &[u8]) -> Vec<u8> {
    compress_to_vec(text, CompressionLevel::Fastest)
}

fn text_of(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    fs::write(&path, bytes).unwrap();
    let mut text = Vec::new();
    open(&path)?.read_to_end(&mut text)?;
    Ok(text)
}

#[test]
fn compressed_files_read_as_what_was_compressed() {
    let long: Vec<u8> = (0..300_000u32).flat_map(|n| n.to_string().into_bytes()).collect();
    assert_eq!(text_of(&long).unwrap(), long);
    assert_eq!(text_of(&packed(&long)).unwrap(), long);
    // Frames one after another, and one between them that carries something else (RFC 8878, 3.1.2).
    let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    let frames = [packed(b"one\n"), skipped, packed(b""), packed(b"two\n")].concat();
    assert_eq!(text_of(&frames).unwrap(), b"one\ntwo\n");
}

#[test]
fn damaged_compression_is_an_error_and_no_short_text() {
    let whole = packed(&[7; 100_000]);
    for end in [5, whole.len() / 2, whole.len() - 1] {
        assert!(text_of(&whole[..end]).is_err(), "cut at {end}");
    }
    let mut followed = packed(b"one\n");
    followed.extend_from_slice(b"no frame");
    assert!(text_of(&followed).is_err());
}

#[test]
fn ledgers_are_found_once_each_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("b/c")).unwrap();
    for name in ["b/c/2.jsonl", "b/1.jsonl.zst", "a.jsonl", "b/x.json", "b/x.txt"] {
        fs::write(at(name), b"").unwrap();
    }
    symlink(at("a.jsonl"), at("b/link.jsonl")).unwrap();
    symlink(dir.path(), at("b/loop")).unwrap();
    symlink(at("gone"), at("b/gone.jsonl")).unwrap();
    let found = find(&[dir.path().to_owned(), at("b/x.txt"), at("a.jsonl")]).unwrap();
    let names: Vec<_> =
        found.iter().map(|i| (i.path.strip_prefix(dir.path()).unwrap().to_str().unwrap(), i.named)).collect();
    assert_eq!(names, [("a.jsonl", false), ("b/1.jsonl.zst", false), ("b/c/2.jsonl", false), ("b/x.txt", true)]);
    assert!(matches!(find(&[at("b/c"), at("none")]), Err(ReportError::Read { .. })));
    fs::create_dir(at("empty")).unwrap();
    assert!(matches!(find(&[at("empty")]), Err(ReportError::NoneFound { .. })));
}

#[test]
fn a_ledger_is_known_by_its_begin() {
    let begins = |bytes: &[u8]| {
        let mut text: Text = Box::new(io::Cursor::new(bytes.to_vec()));
        begins_as_ledger(&mut text).unwrap()
    };
    assert!(begins(b"") && begins(b"{\"v\"") && begins(b"{\"v\":1,\"seq\":0"));
    assert!(!begins(b"{\"type\":\"user\"}") && !begins(b"x"));
}
