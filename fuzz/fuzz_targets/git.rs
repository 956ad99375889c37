//! A repository's files are read with privilege, and a hostile command may have written them: whatever their bytes, reading
//! them ends, in bounded memory, and what is taken from them holds.
#![no_main]

use flate2::Compression;
use flate2::write::ZlibEncoder;
use libfuzzer_sys::fuzz_target;
use ringfence::git::index::Index;
use ringfence::git::objects::{Objects, Reader};
use ringfence::git::place::Place;
use ringfence::git::walk::new_beneath;
use ringfence::git::{Algorithm, Kind, Oid, config, refs};
use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

const LIMIT: u64 = 1 << 20;

/// A git directory in memory.
static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = PathBuf::from(format!("/dev/shm/ringfence-fuzz-git-{}", std::process::id()));
    for below in ["refs/heads", "objects/pack"] {
        std::fs::create_dir_all(path.join(below)).expect("a directory in memory");
    }
    path
});

fn put(below: &str, bytes: &[u8]) {
    std::fs::write(DIRECTORY.join(below), bytes).expect("a file in memory");
}

fn of_config(text: &[u8]) {
    let Ok(filtered) = config::filter(Path::new("config"), text) else { return };
    let again = config::filter(Path::new("config"), filtered.text.as_bytes()).expect("what is kept is a configuration");
    assert_eq!(again.text, filtered.text);
}

fn of_index(bytes: &[u8], algorithm: Algorithm) {
    let Ok(index) = Index::parse(Path::new("index"), bytes, algorithm) else { return };
    let again = Index::parse(Path::new("index"), &index.to_bytes(), algorithm).expect("what is kept is an index");
    assert_eq!(again.entries, index.entries);
}

fn of_refs(bytes: &[u8]) {
    put("packed-refs", bytes);
    put("refs/heads/one", &bytes[..bytes.len().min(64)]);
    put("HEAD", bytes);
    let place = Place::new(DIRECTORY.clone());
    let _head = refs::head(&place, Algorithm::Sha1);
    let _now = refs::current(&place, "refs/heads/one", Algorithm::Sha1);
    for name in refs::all(&place, Algorithm::Sha1).expect("they are few").keys() {
        let below = Path::new(name).components().all(|part| matches!(part, std::path::Component::Normal(_)));
        assert!(below && name.starts_with("refs/") && !name.contains(char::is_control), "{name:?}");
    }
}

/// What the head of an entry says that it is long.
fn head(kind: u8, mut size: usize) -> Vec<u8> {
    let mut bytes = vec![kind << 4 | (size & 15) as u8];
    size >>= 4;
    while size > 0 {
        *bytes.last_mut().expect("it has one") |= 0x80;
        bytes.push((size & 0x7f) as u8);
        size >>= 7;
    }
    bytes
}

fn name(number: usize) -> [u8; 20] {
    [number as u8; 20]
}

/// A pack whose entries inflate, as no mutation would have it: what they hold is the input's. The first byte of each is its kind,
/// the second the number of its base.
fn of_pack(bytes: &[u8]) {
    let entries: Vec<&[u8]> = bytes.split(|byte| *byte == 0xa5).take(16).collect();
    let mut pack = b"PACK\0\0\0\x02".to_vec();
    pack.extend((entries.len() as u32).to_be_bytes());
    let mut offsets = Vec::new();
    for entry in &entries {
        let at = pack.len();
        offsets.push(at);
        let (kind, base, content) = match entry {
            [kind, base, content @ ..] => (kind & 7, usize::from(*base % 16), content),
            _ => (3, 0, &entry[..]),
        };
        pack.extend(head(kind, content.len()));
        match kind {
            6 => {
                let back = at - offsets[base.min(offsets.len() - 1)];
                let high = (back >> 7).checked_sub(1);
                pack.extend(high.map(|high| 0x80 | (high & 0x7f) as u8));
                pack.push((back & 0x7f) as u8);
            }
            7 => pack.extend(name(base)),
            _ => {}
        }
        let mut packer = ZlibEncoder::new(Vec::new(), Compression::none());
        packer.write_all(content).expect("memory");
        pack.extend(packer.finish().expect("memory"));
    }
    pack.extend([0; 20]);
    let mut index = b"\xfftOc\0\0\0\x02".to_vec();
    for first in 0..256 {
        index.extend((entries.len().min(first + 1) as u32).to_be_bytes());
    }
    (0..entries.len()).for_each(|number| index.extend(name(number)));
    index.extend(vec![0; 4 * entries.len()]);
    offsets.iter().for_each(|offset| index.extend((*offset as u32).to_be_bytes()));
    index.extend([0; 40]);
    read_all(&pack, &index);
}

/// The bytes as they are, for a pack and its index.
fn of_both(bytes: &[u8]) {
    let (pack, index) = bytes.split_at(bytes.len() / 2);
    read_all(&[b"PACK\0\0\0\x02", pack].concat(), index);
}

fn read_all(pack: &[u8], index: &[u8]) {
    put("objects/pack/x.pack", pack);
    put("objects/pack/x.idx", index);
    let Ok(objects) = Objects::open(vec![Place::new(DIRECTORY.join("objects"))], Algorithm::Sha1) else { return };
    let mut reader = Reader::new(&objects, LIMIT).with_at_most(8 * LIMIT);
    for number in 0..objects.len().min(64) as u32 {
        assert_eq!(objects.find(&objects.name(number)), Some(number));
        if let Ok((_, content)) = reader.read(number) {
            assert!(content.len() as u64 <= LIMIT);
        }
        for kind in [Kind::Commit, Kind::Tree, Kind::Tag] {
            let tip = (objects.name(number), kind);
            let _new = new_beneath(tip, &HashSet::<Oid>::new(), &objects, &mut reader, &HashSet::new());
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 6 {
        0 => of_config(bytes),
        1 => of_index(bytes, Algorithm::Sha1),
        2 => of_index(bytes, Algorithm::Sha256),
        3 => of_refs(bytes),
        4 => of_pack(bytes),
        _ => of_both(bytes),
    }
});
