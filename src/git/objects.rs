//! All objects that a repository has, packed and loose, under one number each.

use super::inflate::Inflater;
use super::pack::{Base, Pack};
use super::pieces;
use super::place::Place;
use super::{Algorithm, GitError, Kind, Oid, delta, form, loose};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Most directories of objects that lead on to one another.
const ALTERNATES: usize = 32;
/// Most bytes of a list of alternates.
const ALTERNATES_LIMIT: u64 = 1 << 20;

/// The objects of some directories.
#[derive(Debug)]
pub struct Objects {
    /// The hash that names them.
    pub algorithm: Algorithm,
    packs: Vec<Pack>,
    /// The number of each pack's first object, and of the first loose one.
    firsts: Vec<u32>,
    directories: Vec<Place>,
    loose: Vec<(Oid, usize)>,
    loose_by_name: HashMap<Oid, u32>,
}

/// Where an object is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Held<'a> {
    /// In a pack, at a place of its own.
    Packed(&'a Pack, u32),
    /// In a file of its own.
    Loose(&'a Place, Oid),
}

/// The directory of objects, and those that its `info/alternates` leads on to (gitrepository-layout(5)).
pub fn with_alternates(objects: &Place) -> Result<Vec<Place>, GitError> {
    let mut found: Vec<Place> = vec![objects.clone()];
    let mut at = 0;
    while let Some(place) = found.get(at).cloned() {
        at += 1;
        let list = place.read("info/alternates", ALTERNATES_LIMIT)?.unwrap_or_default();
        for line in list.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && !line.starts_with(b"#")) {
            if line.starts_with(b"\"") {
                return Err(form(&place.path.join("info/alternates"), "it holds a quoted path; accepted: plain ones"));
            }
            let named = place.path.join(std::ffi::OsStr::from_bytes(line));
            // One that is gone is passed over, as git does.
            let Ok(real) = named.canonicalize() else { continue };
            if !found.iter().any(|known| known.path == real) {
                found.push(Place::new(real));
            }
            if found.len() > ALTERNATES {
                return Err(form(
                    &place.path.join("info/alternates"),
                    format!("it leads on to more than {ALTERNATES}"),
                ));
            }
        }
    }
    Ok(found)
}

impl Objects {
    /// Opens what is in some directories. Of an object that is there more than once the first counts.
    pub fn open(directories: Vec<Place>, algorithm: Algorithm) -> Result<Objects, GitError> {
        let (mut packs, mut loose, mut loose_by_name) = (Vec::new(), Vec::new(), HashMap::new());
        let room = pieces::room();
        for (number, directory) in directories.iter().enumerate() {
            let place = directory.at("pack");
            let names = place.names("")?;
            for name in names.iter().filter_map(|name| name.to_str()) {
                // Without a pack an index is nothing: git removes the two one after the other.
                let pack = name.strip_suffix(".idx").map(|stem| format!("{stem}.pack"));
                if pack.is_some_and(|pack| names.contains(&pack.into())) {
                    packs.push(Pack::open(&place, name, algorithm, &room)?);
                }
            }
            for fan in directory.names("")?.iter().filter_map(|name| name.to_str()).filter(|name| name.len() == 2) {
                for rest in directory.names(fan)? {
                    let hex = [fan.as_bytes(), rest.as_bytes()].concat();
                    let Some(oid) = Oid::from_hex(&hex, algorithm) else { continue };
                    if let std::collections::hash_map::Entry::Vacant(vacant) = loose_by_name.entry(oid) {
                        vacant.insert(loose.len() as u32);
                        loose.push((oid, number));
                    }
                }
            }
        }
        let mut firsts = vec![0u32];
        for pack in &packs {
            let next = u32::try_from(pack.len()).ok().and_then(|count| firsts.last()?.checked_add(count));
            firsts.push(next.ok_or_else(|| form(&PathBuf::from("objects"), "there are too many"))?);
        }
        Ok(Objects { algorithm, packs, firsts, directories, loose, loose_by_name })
    }

    /// How many numbers there are.
    pub fn len(&self) -> usize {
        self.firsts.last().map_or(0, |first| *first as usize) + self.loose.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of an object: always the same for one name.
    pub fn find(&self, oid: &Oid) -> Option<u32> {
        self.find_name(oid.as_bytes())
    }

    /// The number of the object of which these are the name's bytes.
    pub(super) fn find_name(&self, name: &[u8]) -> Option<u32> {
        let packed = self.packs.iter().zip(&self.firsts).find_map(|(pack, first)| Some(first + pack.find(name)?));
        packed.or_else(|| match self.loose.is_empty() {
            true => None,
            false => Some(self.firsts.last()? + self.loose_by_name.get(&Oid::of(name))?),
        })
    }

    /// The name of an object.
    pub fn name(&self, number: u32) -> Oid {
        Oid::of(self.name_bytes(number))
    }

    /// The bytes of an object's name.
    pub fn name_bytes(&self, number: u32) -> &[u8] {
        let pack = self.pack_of(number);
        match self.packs.get(pack) {
            Some(held) => held.name(number - self.firsts[pack]),
            None => self.loose[(number - self.firsts[pack]) as usize].0.as_bytes(),
        }
    }

    /// Sorts numbers by the names of their objects. In one pack they are sorted so already.
    pub fn sort_by_name(&self, numbers: &mut [u32]) {
        numbers.sort_unstable();
        if self.packs.len() + usize::from(!self.loose.is_empty()) > 1 || self.packs.is_empty() {
            numbers.sort_by(|one, other| self.name_bytes(*one).cmp(self.name_bytes(*other)));
        }
    }

    /// The packs, with the number of the first object of each.
    pub(super) fn packs(&self) -> impl Iterator<Item = (&Pack, u32)> {
        self.packs.iter().zip(self.firsts.iter().copied())
    }

    fn pack_of(&self, number: u32) -> usize {
        self.firsts.partition_point(|first| *first <= number) - 1
    }

    /// Where an object is.
    pub(super) fn held(&self, number: u32) -> Held<'_> {
        let pack = self.pack_of(number);
        match self.packs.get(pack) {
            Some(held) => Held::Packed(held, number - self.firsts[pack]),
            None => {
                let (oid, directory) = self.loose[(number - self.firsts[pack]) as usize];
                Held::Loose(&self.directories[directory], oid)
            }
        }
    }

    /// Those of the objects that are `within`, in the order in which they are best read.
    pub(super) fn in_order(&self, within: &[bool]) -> impl Iterator<Item = u32> {
        let packed = self.packs().flat_map(|(pack, first)| pack.in_order().map(move |place| first + place));
        let loose = self.firsts.last().copied().unwrap_or_default()..self.len() as u32;
        packed.chain(loose).filter(|number| within[*number as usize])
    }

    /// About how many bytes an object takes as it is stored.
    pub(super) fn stored(&self, number: u32) -> u64 {
        match self.held(number) {
            Held::Packed(pack, place) => pack.stored(place),
            Held::Loose(..) => 0,
        }
    }

    /// The number of the base that an entry of a pack builds on.
    pub(super) fn base(&self, of: u32, base: Base) -> Option<u32> {
        match base {
            Base::Place(place) => Some(self.firsts[self.pack_of(of)] + place),
            Base::Named(oid) => self.find(&oid),
        }
    }
}

/// How many objects are kept that have been read, by the last bits of their numbers.
const KEPT: usize = 1 << 14;
/// Most bytes of one that is kept, and of all.
const KEPT_SIZE: usize = 1 << 16;
const KEPT_BYTES: usize = 64 << 20;
/// Most deltas one on the other.
const CHAIN: usize = 4096;

/// An object that has been read, with its number.
type Kept = (u32, Kind, Arc<Vec<u8>>);

/// Reads objects, and keeps some of them for the deltas that build on them. Each thread has one.
#[derive(Debug)]
pub struct Reader<'a> {
    objects: &'a Objects,
    inflater: Inflater,
    entry: Vec<u8>,
    kept: Vec<Option<Kept>>,
    kept_bytes: usize,
    limit: u64,
    /// How many bytes may still be made.
    left: u64,
}

/// What an object costs beside its bytes.
const EACH: u64 = 4096;

fn spend(left: &mut u64, bytes: u64, oid: impl FnOnce() -> Oid) -> Result<(), GitError> {
    let rest = left.checked_sub(bytes);
    *left = rest.unwrap_or(0);
    rest.map(drop).ok_or_else(|| GitError::Object { oid: oid(), fault: "with it there is too much to be read" })
}

impl<'a> Reader<'a> {
    /// Reads objects of at most `limit` bytes.
    pub fn new(objects: &'a Objects, limit: u64) -> Reader<'a> {
        let kept = vec![None; objects.len().clamp(1, KEPT)];
        Reader { objects, inflater: Inflater::new(), entry: Vec::new(), kept, kept_bytes: 0, limit, left: u64::MAX }
    }

    /// Makes no more than so many bytes in all, each object that is read and each step of a delta counted: a few bytes of a hostile
    /// pack may say to make the same large object thousands of times.
    pub fn with_at_most(self, left: u64) -> Reader<'a> {
        Reader { left, ..self }
    }

    /// An object. Its name is not held against its content.
    pub fn read(&mut self, number: u32) -> Result<(Kind, Arc<Vec<u8>>), GitError> {
        let mut deltas: Vec<(u32, Vec<u8>)> = Vec::new();
        let (mut at, mut bytes) = (number, 0u64);
        let objects = self.objects;
        spend(&mut self.left, EACH, || objects.name(number))?;
        let (kind, mut content) = loop {
            let kept = &self.kept[at as usize % self.kept.len()];
            if let Some((_, kind, content)) = kept.as_ref().filter(|(kept, ..)| *kept == at) {
                let kept = (*kind, content.clone());
                spend(&mut self.left, kept.1.len() as u64, || objects.name(at))?;
                break kept;
            }
            let fault = |fault| GitError::Object { oid: objects.name(at), fault };
            match objects.held(at) {
                Held::Loose(place, oid) => {
                    let (kind, content) = loose::read(place, &oid, self.limit)?;
                    spend(&mut self.left, content.len() as u64, || oid)?;
                    break (kind, Arc::new(content));
                }
                Held::Packed(pack, place) => {
                    let entry = pack.entry(place, self.limit, &mut self.entry)?;
                    let head = pack.head(place, entry)?;
                    bytes = bytes.saturating_add(head.size);
                    if bytes > self.limit || deltas.len() > CHAIN {
                        return Err(fault("it is too large"));
                    }
                    let cost = head.size.saturating_add(entry.len() as u64);
                    spend(&mut self.left, cost, || objects.name(at))?;
                    let inflated = self.inflater.inflate(&entry[head.data..], head.size);
                    let inflated = inflated.ok_or_else(|| fault("it cannot be inflated"))?;
                    match (head.kind, head.base) {
                        (Some(kind), _) => break (kind, Arc::new(inflated)),
                        (None, Some(base)) => {
                            deltas.push((at, inflated));
                            at = objects.base(at, base).ok_or_else(|| fault("its delta has no base"))?;
                        }
                        (None, None) => return Err(fault("its entry in the pack has no head")),
                    }
                }
            }
        };
        self.keep(at, kind, &content);
        while let Some((of, delta)) = deltas.pop() {
            let made = delta::apply(&content, &delta, self.limit);
            let fault = || GitError::Object { oid: objects.name(of), fault: "its delta does not fit its base" };
            content = Arc::new(made.ok_or_else(fault)?);
            spend(&mut self.left, content.len() as u64, || objects.name(of))?;
            self.keep(of, kind, &content);
        }
        Ok((kind, content))
    }

    /// An object whose content has its name.
    pub fn read_verified(&mut self, number: u32) -> Result<(Kind, Arc<Vec<u8>>), GitError> {
        let (kind, content) = self.read(number)?;
        let oid = self.objects.name(number);
        match self.objects.algorithm.name_of(kind, &content) == oid {
            true => Ok((kind, content)),
            false => Err(GitError::Object { oid, fault: "its content has another name" }),
        }
    }

    fn keep(&mut self, number: u32, kind: Kind, content: &Arc<Vec<u8>>) {
        if content.len() > KEPT_SIZE {
            return;
        }
        if self.kept_bytes > KEPT_BYTES {
            self.kept.fill(None);
            self.kept_bytes = 0;
        }
        let slot = number as usize % self.kept.len();
        self.kept_bytes += content.len();
        if let Some((.., old)) = self.kept[slot].replace((number, kind, content.clone())) {
            self.kept_bytes -= old.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::inflate::tests::deflated;

    #[test]
    fn no_more_is_made_than_was_allowed() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::new(directory.path().canonicalize().unwrap());
        let content = vec![b'x'; 1 << 20];
        let oid = Algorithm::Sha1.name_of(Kind::Blob, &content);
        let path = place.path.join(loose::path_of(&oid));
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        std::fs::write(path, deflated(&[b"blob 1048576\0", &content[..]].concat())).unwrap();
        let objects = Objects::open(vec![place], Algorithm::Sha1).unwrap();
        let number = objects.find(&oid).unwrap();
        let mut reader = Reader::new(&objects, 1 << 30).with_at_most(2 * ((1 << 20) + EACH));
        assert!(reader.read_verified(number).is_ok() && reader.read(number).is_ok());
        assert!(reader.read(number).unwrap_err().to_string().contains("too much"));
        assert!(reader.read(number).is_err(), "nor afterwards");
        let mut reader = Reader::new(&objects, 1 << 30);
        assert!((0..100).all(|_| reader.read(number).is_ok()));
    }

    /// A size as packs and deltas have it, seven bits a byte; `first` are what stands before it in its first byte.
    fn sized(mut size: usize, first: Option<u8>) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(kind) = first {
            bytes.push(kind << 4 | (size & 15) as u8 | 0x80);
            size >>= 4;
        }
        while size > 0x7f {
            bytes.push((size & 0x7f) as u8 | 0x80);
            size >>= 7;
        }
        bytes.push(size as u8);
        bytes
    }

    #[test]
    fn each_step_of_a_delta_counts() {
        const LENGTH: usize = 1 << 20;
        let directory = tempfile::tempdir().unwrap();
        let place = Place::new(directory.path().canonicalize().unwrap());
        let mut pack = b"PACK\0\0\0\x02\0\0\0\x21".to_vec();
        let mut offsets = vec![pack.len() as u32];
        pack.extend([sized(LENGTH, Some(3)), deflated(&vec![0; LENGTH])].concat());
        // All of the base, in two pieces of half a mebibyte: 32 times, one on the other.
        let piece = |at: u8| [0x80 | 0x04 | 0x40, at, 0x08];
        let delta = [sized(LENGTH, None), sized(LENGTH, None), piece(0).to_vec(), piece(8).to_vec()].concat();
        for number in 0..32u8 {
            offsets.push(pack.len() as u32);
            pack.extend([sized(delta.len(), Some(7)), vec![number; 20], deflated(&delta)].concat());
        }
        pack.extend([0; 20]);
        let mut index = b"\xfftOc\0\0\0\x02".to_vec();
        (0..256u32).for_each(|first| index.extend((first + 1).min(33).to_be_bytes()));
        (0..33u8).for_each(|number| index.extend([number; 20]));
        index.extend([0; 4 * 33]);
        offsets.iter().for_each(|offset| index.extend(offset.to_be_bytes()));
        index.extend([0; 40]);
        std::fs::create_dir(place.path.join("pack")).unwrap();
        std::fs::write(place.path.join("pack/x.pack"), pack).unwrap();
        std::fs::write(place.path.join("pack/x.idx"), index).unwrap();
        let objects = Objects::open(vec![place], Algorithm::Sha1).unwrap();
        let read = |most: usize| Reader::new(&objects, 1 << 30).with_at_most(most as u64).read(32);
        assert_eq!(read(40 * LENGTH).unwrap().1.len(), LENGTH);
        assert!(read(30 * LENGTH).unwrap_err().to_string().contains("too much"));
    }
}
