//! The registers and the memory of a stopped call's caller, all of which it may choose, and may change while they are read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence::observe::act::{Act, Address, Change, Made, Place, Value};
use ringfence::observe::caller::{Memory, PATH_MAX, Unread};
use ringfence::observe::calls::{Calls, Found, NATIVE, Structures};
use ringfence::observe::decode::{Call, again};
use ringfence::observe::watched::{Ids, Reading};
use ringfence::plan::means::{Means, Reads, Terms};
use ringfence::policy::{Abi, Posture};
use ringfence::sys::notify::CallData;
use std::cell::Cell;
use std::sync::LazyLock;

const PAGE: u64 = 4096;
/// The longest that is read at once: the value of an extended attribute.
const LONGEST: usize = 65_536;
/// Where mapped memory begins; what lies before it and after it is not mapped.
const BASE: u64 = 0x10_0000;

/// Memory of some pages, one of which may be a hole, that may change from one look to the next.
#[derive(Debug)]
struct Pages<'a> {
    bytes: &'a [u8],
    /// The page that is not there.
    hole: u64,
    /// What is added to each byte at each further look.
    change: u8,
    looks: Cell<u8>,
}

impl Memory for Pages<'_> {
    fn read_some(&self, address: u64, buffer: &mut [u8]) -> Result<usize, Unread> {
        assert!(buffer.len() <= LONGEST, "{} bytes at once", buffer.len());
        let looks = self.looks.get();
        self.looks.set(looks.wrapping_add(1));
        let mut read = 0;
        for byte in buffer.iter_mut() {
            let Some(at) = address.checked_add(read as u64).and_then(|at| at.checked_sub(BASE)) else { break };
            // The bytes repeat, so that memory is larger than the input.
            if self.bytes.is_empty() || at >= 32 * PAGE || at / PAGE == self.hole {
                break;
            }
            *byte = self.bytes[at as usize % self.bytes.len()].wrapping_add(self.change.wrapping_mul(looks));
            read += 1;
        }
        if read == 0 && !buffer.is_empty() { Err(Unread::Form) } else { Ok(read) }
    }
}

/// A register: nothing, a small number, an address, or anything.
fn register(kind: u8, bytes: [u8; 8]) -> u64 {
    let word = u64::from_le_bytes(bytes);
    match kind % 8 {
        0 => 0,
        1 => word % 8192,
        2 => BASE + word % (33 * PAGE),
        // Where a page ends.
        3 => BASE + (word % 33) * PAGE - word / 64 % 16,
        4 => u64::MAX - word % PAGE,
        5 => (-100i64) as u64,
        6 => 1 << (word % 64),
        _ => word,
    }
}

/// All that is looked at, under each posture of the privilege axis that has anything looked at, with and without mounts.
static TABLES: LazyLock<[Calls; 3]> = LazyLock::new(|| {
    let ids = Ids { uid: 10_001, gid: 10_002 };
    let terms = [(Posture::Locked, Means::FULL), (Posture::Restricted, Means::FULL), (Posture::Locked, Means::BARE)];
    terms.map(|(privilege, means)| {
        Calls::new(
            &Terms { privilege, network: Posture::Restricted, means, reads: Reads::Names, caught: true },
            ids,
            &[Abi::I386],
        )
    })
});

fn check(place: &Place) {
    assert!(place.given.len() < PATH_MAX && !place.given.contains(&0), "{place:?}");
}

fn check_act(act: &Act) {
    match act {
        Act::Open { at, .. } | Act::Remove(at, _) | Act::Access(at, _) | Act::Execute(at) => check(at),
        Act::Make(at, made) => {
            check(at);
            if let Made::Symlink(target) = made {
                assert!(target.len() < PATH_MAX && !target.contains(&0));
            }
        }
        Act::Link(from, to) | Act::Rename(from, to, _) => {
            check(from);
            check(to);
        }
        Act::Change(at, change) => {
            check(at);
            match change {
                Change::SetXattr(name, value, _) => assert!(!name.contains(&0) && value.len() <= LONGEST),
                Change::RemoveXattr(name) => assert!(!name.contains(&0)),
                Change::Inode(_, bytes) | Change::FileAttributes(bytes) => assert!(bytes.len() <= PAGE as usize),
                _ => {}
            }
        }
        Act::Reach { address: Address::Unix(at), .. } => check(at),
        Act::Privileged(values) => {
            assert!(values.len() <= 6);
            for value in values {
                match value {
                    Value::Text(text) => assert!(text.len() < PATH_MAX && !text.contains(&0)),
                    Value::Memory(bytes) => assert!(bytes.len() <= PAGE as usize),
                    Value::Path(at) => check(at),
                    Value::Number(_) => {}
                }
            }
        }
        _ => {}
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&[which, form, hole, change], rest)) = input.split_first_chunk() else { return };
    let Some((kinds, rest)) = rest.split_first_chunk::<6>() else { return };
    let Some((words, bytes)) = rest.split_first_chunk::<48>() else { return };
    let arguments: [u64; 6] =
        std::array::from_fn(|n| register(kinds[n], words[n * 8..][..8].try_into().expect("eight bytes")));

    let all = &TABLES[usize::from(form) % TABLES.len()];
    let call = &all.watched[usize::from(which) % all.watched.len()];
    let structures = [Structures::Native, Structures::Narrow, Structures::Time64][usize::from(form >> 4) % 3];
    let change = if form & 4 == 0 { 0 } else { change };
    let read = || {
        let memory = Pages { bytes, hole: u64::from(hole), change, looks: Cell::new(0) };
        let stopped = Call { caller: &memory, arguments, structures };
        match call.reading {
            Reading::Act(reading) => reading(&stopped),
            Reading::Again(shape) => again(&stopped, shape),
        }
    };
    let act = read();
    assert_eq!(act, read(), "the same bytes, another meaning");
    if let Ok(act) = &act {
        check_act(act);
    }

    // Any number in any table is something, or nothing.
    let number = i32::from_le_bytes([words[0], words[1] % 4, 0, words[3]]);
    let arch = if form & 8 == 0 { NATIVE } else { u32::from_le_bytes([words[4], words[5], words[6], words[7]]) };
    let data = CallData { number, arch, instruction: 0, arguments };
    if let Found::Watched(found, native) = all.find(&data) {
        assert!(found.concerns(&native.arguments), "{}", found.call);
    }
});
