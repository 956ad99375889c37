//! Git's packs (gitformat-pack(5)): each object's compressed data by itself. Of an object that is kept as a difference the
//! difference is read, which has in plain what the object has and its base has not.

use super::inflate::Inflate;
use super::unpack::{Members, Tee, damaged};
use std::io::{self, Read};

/// Gives every object's data to `members`.
pub(super) fn walk<R: Read>(tee: &mut Tee<'_, '_, R>, members: &mut dyn Members) -> io::Result<()> {
    let head: [u8; 12] = read(tee)?;
    let count = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
    for number in 0..count {
        let [first] = read(tee)?;
        let mut more = first & 0x80 != 0;
        while more {
            let [byte] = read(tee)?;
            more = byte & 0x80 != 0;
        }
        match first >> 4 & 7 {
            // A base by its distance: a number of as many bytes as it takes.
            6 => while read::<1, R>(tee)?[0] & 0x80 != 0 {},
            // A base by its name.
            7 => drop(read::<20, R>(tee)?),
            _ => {}
        }
        let mut decoder = Inflate::zlib(&mut *tee);
        let member = members.member(&format!("object {number}"), &mut decoder);
        member.and_then(|()| io::copy(&mut decoder, &mut io::sink())).map_err(|cause| damaged("git pack", cause))?;
    }
    Ok(())
}

fn read<const N: usize, R: Read>(tee: &mut Tee<'_, '_, R>) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    tee.read_exact(&mut bytes).map_err(|cause| damaged("git pack", cause))?;
    Ok(bytes)
}
