//! `struct msghdr` and what is behind it (sendmsg(2), cmsg(3)), in the layout of the caller's kind of program.

use super::ADDRESS_MAX;
use crate::observe::act::Received;
use crate::observe::caller::{Memory, Unread};
use nix::errno::Errno;

/// One message to be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// The address that it is sent to; empty for none.
    pub name: Vec<u8>,
    /// What is sent.
    pub data: Vec<u8>,
    /// The control messages.
    pub control: Vec<Control>,
    /// Whether there was more data than is read at once.
    pub cut: bool,
}

/// One control message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// `cmsg_level`.
    pub level: i32,
    /// `cmsg_type`.
    pub kind: i32,
    /// What it holds.
    pub data: Vec<u8>,
}

/// Why a message cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The kernel says so as well.
    Errno(Errno),
    /// It could not be read.
    Unread(Unread),
}

impl From<Unread> for Fault {
    fn from(unread: Unread) -> Fault {
        if unread == Unread::Form { Fault::Errno(Errno::EFAULT) } else { Fault::Unread(unread) }
    }
}

/// The most data that is read of one message, in bytes.
pub const DATA_MAX: usize = 1 << 20;
/// `UIO_MAXIOV` (linux/uio.h).
const PARTS_MAX: usize = 1024;
/// More than any kernel's `net.core.optmem_max` has been by default.
const CONTROL_MAX: usize = 128 << 10;

/// Where the fields of a program's structures lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    word: usize,
}

impl Layout {
    /// Of this architecture, or of 32-bit programs.
    pub fn new(narrow: bool) -> Layout {
        Layout { word: if narrow { 4 } else { 8 } }
    }

    /// The distance from one `struct mmsghdr` to the next, and where the length is in it that sendmmsg(2) writes.
    pub fn many(self) -> (u64, u64) {
        if self.word == 4 { (32, 28) } else { (64, 56) }
    }

    fn at(self, bytes: &[u8], offset: usize) -> u64 {
        let field = &bytes[offset..offset + self.word];
        match field.try_into() {
            Ok(wide) => u64::from_ne_bytes(wide),
            Err(_) => field.try_into().map_or(0, |narrow| u64::from(u32::from_ne_bytes(narrow))),
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word))
}

/// The message at an address. The address of a message that is read twice may differ: it is read once.
pub fn message(memory: &dyn Memory, at: u64, layout: Layout) -> Result<Message, Fault> {
    let width = layout.word;
    // The name and its length, the parts and their number, the control messages and their size: words all, but that the
    // length of the name is an int in the place of one.
    let head = memory.bytes(at, 6 * width)?;
    let name_length = word(&head, width) as i32;
    if name_length < 0 {
        return Err(Fault::Errno(Errno::EINVAL));
    }
    let field = |index: usize| layout.at(&head, index * width);
    let (name, parts, count) = (field(0), field(2), field(3) as usize);
    let (control, size) = (field(4), field(5) as usize);
    if count > PARTS_MAX {
        return Err(Fault::Errno(Errno::EMSGSIZE));
    }
    if size > CONTROL_MAX {
        return Err(Fault::Errno(Errno::ENOBUFS));
    }
    let name = match name_length as usize {
        0 => Vec::new(),
        _ if name == 0 => Vec::new(),
        length => memory.bytes(name, length.min(ADDRESS_MAX))?,
    };
    let mut message = Message { name, ..Message::default() };
    for (base, length) in vector(memory, parts, count, layout)? {
        if isize::try_from(length).is_err() {
            return Err(Fault::Errno(Errno::EINVAL));
        }
        take(memory, base, length, &mut message)?;
    }
    if control != 0 && size != 0 {
        message.control = controls(&memory.bytes(control, size)?, layout)?;
    }
    Ok(message)
}

/// The parts of a `struct iovec` array: where each is, and its length.
fn vector(memory: &dyn Memory, at: u64, count: usize, layout: Layout) -> Result<Vec<(u64, usize)>, Fault> {
    let part = 2 * layout.word;
    let bytes = if count == 0 { Vec::new() } else { memory.bytes(at, count * part)? };
    let read = |part: &[u8]| (layout.at(part, 0), layout.at(part, layout.word) as usize);
    Ok(bytes.chunks_exact(part).map(read).collect())
}

/// Where a message is to be laid down that is received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rooms {
    /// Where its data goes, with the room in bytes.
    pub parts: Vec<(u64, usize)>,
    /// Where the sender's address goes; 0 for nowhere.
    pub name: u64,
    /// Room for it.
    pub name_room: usize,
    /// Where its length goes.
    pub name_length: u64,
    /// Where the size of the control messages goes, and the width of that field.
    pub control_size: Option<(u64, usize)>,
    /// Where the flags go.
    pub flags: Option<u64>,
}

/// The room for a message.
pub fn rooms(memory: &dyn Memory, into: &Received, layout: Layout) -> Result<Rooms, Fault> {
    let at = match *into {
        Received::Piece { data, length, address, address_length } => {
            let room = if address == 0 { 0 } else { word(&memory.bytes(address_length, 4)?, 0) as i32 };
            let name_room = usize::try_from(room).map_err(|_| Fault::Errno(Errno::EINVAL))?;
            let parts = vec![(data, (length as usize).min(DATA_MAX))];
            let (control_size, flags) = (None, None);
            return Ok(Rooms { parts, name: address, name_room, name_length: address_length, control_size, flags });
        }
        Received::Message { at } => at,
    };
    let width = layout.word;
    let head = memory.bytes(at, 6 * width)?;
    let field = |index: usize| layout.at(&head, index * width);
    let place = |index: usize| at.wrapping_add((index * width) as u64);
    let name_room = usize::try_from(word(&head, width) as i32).map_err(|_| Fault::Errno(Errno::EINVAL))?;
    let count = field(3) as usize;
    if count > PARTS_MAX {
        return Err(Fault::Errno(Errno::EMSGSIZE));
    }
    let mut parts = vector(memory, field(2), count, layout)?;
    let mut left = DATA_MAX;
    for (_, length) in &mut parts {
        *length = (*length).min(left);
        left -= *length;
    }
    Ok(Rooms {
        parts,
        name: field(0),
        name_room,
        name_length: place(1),
        control_size: Some((place(5), width)),
        flags: Some(place(6)),
    })
}

/// Where the name of the message at an address is, and its length.
pub fn name(memory: &dyn Memory, at: u64, layout: Layout) -> Result<(u64, u32), Unread> {
    let head = memory.bytes(at, 2 * layout.word)?;
    Ok((layout.at(&head, 0), word(&head, layout.word)))
}

/// One piece of data, as sendto(2) has it.
pub fn piece(memory: &dyn Memory, base: u64, length: u64, name: Vec<u8>) -> Result<Message, Fault> {
    let mut message = Message { name, ..Message::default() };
    take(memory, base, length as usize, &mut message)?;
    Ok(message)
}

fn take(memory: &dyn Memory, base: u64, length: usize, message: &mut Message) -> Result<(), Fault> {
    let room = DATA_MAX - message.data.len();
    message.cut |= length > room;
    let length = length.min(room);
    if length > 0 {
        message.data.extend(memory.bytes(base, length)?);
    }
    Ok(())
}

/// The control messages in a buffer, each with a length of its own (cmsg(3)).
fn controls(bytes: &[u8], layout: Layout) -> Result<Vec<Control>, Fault> {
    let head = layout.word + 8;
    let mut found = Vec::new();
    let mut rest = bytes;
    // What is too short for a head is not looked at by the kernel either.
    while rest.len() >= head {
        let length = layout.at(rest, 0) as usize;
        if length < head || length > rest.len() {
            return Err(Fault::Errno(Errno::EINVAL));
        }
        let (level, kind) = (word(rest, layout.word) as i32, word(rest, layout.word + 4) as i32);
        found.push(Control { level, kind, data: rest[head..length].to_vec() });
        rest = rest.get(length.next_multiple_of(layout.word)..).unwrap_or_default();
    }
    Ok(found)
}

/// Control messages as this architecture lays them out.
pub fn native(controls: &[Control]) -> Vec<u8> {
    const HEAD: usize = 16;
    let mut bytes = Vec::new();
    for control in controls {
        bytes.extend((HEAD + control.data.len()).to_ne_bytes());
        bytes.extend(control.level.to_ne_bytes());
        bytes.extend(control.kind.to_ne_bytes());
        bytes.extend(&control.data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Memory from address 4096 on.
    #[derive(Debug)]
    struct Bytes(Vec<u8>);

    const BASE: u64 = 4096;

    impl Memory for Bytes {
        fn read_some(&self, address: u64, buffer: &mut [u8]) -> Result<usize, Unread> {
            let from = address.checked_sub(BASE).and_then(|from| usize::try_from(from).ok()).ok_or(Unread::Form)?;
            let bytes = self.0.get(from..).ok_or(Unread::Form)?;
            let length = bytes.len().min(buffer.len());
            buffer[..length].copy_from_slice(&bytes[..length]);
            Ok(length)
        }
    }

    /// A message of two parts with an address and a control message, as a program of that kind has it.
    fn laid_out(narrow: bool) -> Bytes {
        let width: usize = if narrow { 4 } else { 8 };
        let word = |value: u64| value.to_le_bytes()[..width].to_vec();
        let at = |offset: usize| BASE + offset as u64;
        let (vector, name, data, control) = (8 * width, 8 * width + 4 * width, 256, 512);
        let control_bytes =
            [word((width + 8 + 5) as u64), 41i32.to_le_bytes().into(), 7i32.to_le_bytes().into(), b"inner".to_vec()];
        let control_bytes = control_bytes.concat();
        let head = [word(at(name)), word(3), word(at(vector)), word(2), word(at(control))];
        let mut bytes = [&head[..], &[word(control_bytes.len() as u64), word(0), word(0)]].concat().concat();
        for part in [word(at(data)), word(4), word(at(data + 4)), word(2)] {
            bytes.extend(part);
        }
        bytes.extend(b"abc");
        bytes.resize(data, 0);
        bytes.extend(b"onetwo");
        bytes.resize(control, 0);
        bytes.extend(control_bytes);
        Bytes(bytes)
    }

    #[test]
    fn a_message_is_read_in_either_layout() {
        for narrow in [false, true] {
            let read = message(&laid_out(narrow), BASE, Layout::new(narrow)).unwrap();
            let control = Control { level: 41, kind: 7, data: b"inner".to_vec() };
            let expected =
                Message { name: b"abc".to_vec(), data: b"onetwo".to_vec(), control: vec![control], cut: false };
            assert_eq!(read, expected, "narrow: {narrow}");
        }
    }

    #[test]
    fn the_room_for_a_message_is_where_its_fields_are() {
        for narrow in [false, true] {
            let width = if narrow { 4 } else { 8 };
            let read = rooms(&laid_out(narrow), &Received::Message { at: BASE }, Layout::new(narrow)).unwrap();
            let at = |index: u64| BASE + index * width as u64;
            assert_eq!(read.parts, [(BASE + 256, 4), (BASE + 260, 2)], "narrow: {narrow}");
            assert_eq!((read.name, read.name_room, read.name_length), (at(12), 3, at(1)));
            assert_eq!((read.control_size, read.flags), (Some((at(5), width)), Some(at(6))));
        }
        let piece = |address, address_length| Received::Piece { data: 7, length: 5, address, address_length };
        let memory = Bytes(9u32.to_ne_bytes().to_vec());
        let read = rooms(&memory, &piece(1, BASE), Layout::new(false)).unwrap();
        assert_eq!((read.parts, read.name_room, read.name_length), (vec![(7, 5)], 9, BASE));
        assert_eq!(rooms(&memory, &piece(1, 1), Layout::new(false)), Err(Fault::Errno(Errno::EFAULT)));
        assert_eq!(rooms(&memory, &piece(0, 1), Layout::new(false)).unwrap().name, 0);
    }

    #[test]
    fn what_the_kernel_refuses_is_refused_alike() {
        let mut memory = laid_out(false);
        memory.0[24..32].copy_from_slice(&1025u64.to_ne_bytes());
        assert_eq!(message(&memory, BASE, Layout::new(false)), Err(Fault::Errno(Errno::EMSGSIZE)));
        memory.0[24..32].copy_from_slice(&100u64.to_ne_bytes());
        assert!(message(&memory, BASE, Layout::new(false)).is_err(), "parts that are not there");
        assert_eq!(message(&memory, 1, Layout::new(false)), Err(Fault::Errno(Errno::EFAULT)));
        let mut memory = laid_out(false);
        memory.0[8..12].copy_from_slice(&(-1i32).to_ne_bytes());
        assert_eq!(message(&memory, BASE, Layout::new(false)), Err(Fault::Errno(Errno::EINVAL)));
    }

    proptest! {
        #[test]
        fn control_messages_are_as_they_were_written(
            parts in prop::collection::vec((any::<i32>(), any::<i32>(), prop::collection::vec(any::<u8>(), 0..40)), 0..6),
        ) {
            let written: Vec<Control> =
                parts.into_iter().map(|(level, kind, data)| Control { level, kind, data }).collect();
            prop_assert_eq!(controls(&native(&written), Layout::new(false)), Ok(written));
        }

        #[test]
        fn any_bytes_are_control_messages_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200), narrow: bool) {
            if let Ok(found) = controls(&bytes, Layout::new(narrow)) {
                prop_assert!(found.iter().map(|control| control.data.len()).sum::<usize>() <= bytes.len());
            }
        }
    }
}
