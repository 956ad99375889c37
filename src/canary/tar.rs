//! Tar archives (pax(1), "ustar Interchange Format", and GNU's long names), front to back.

use super::unpack::{Members, Tee};
use std::io::{self, Read};

const BLOCK: usize = 512;

/// The longest extended header that is read for a name, in bytes.
const LONGEST: u64 = 1 << 20;

/// Whether a stream begins with a header: its sum is right.
pub(super) fn is_header(head: &[u8]) -> bool {
    head.len() >= BLOCK && head[0] != 0 && sum_is_right(&head[..BLOCK])
}

/// Gives every file's content to `members`. Headers stay with the archive's own bytes.
pub(super) fn walk<R: Read>(tee: &mut Tee<'_, '_, R>, members: &mut dyn Members) -> io::Result<()> {
    let mut long_name: Option<String> = None;
    let mut long_size: Option<u64> = None;
    let mut header = [0; BLOCK];
    let mut ended = false;
    // What stands after its end may be no whole block; why that can't be read is told by who reads the archive's own bytes.
    while read_block(tee, &mut header).or_else(|cause| if ended { Ok(false) } else { Err(cause) })? {
        // Its end; another archive may follow (tar(1), --ignore-zeros).
        if header.iter().all(|byte| *byte == 0) {
            ended = true;
            continue;
        }
        if !sum_is_right(&header) {
            return if ended { Ok(()) } else { Err(damaged()) };
        }
        let size = number(&header[124..136]).ok_or_else(damaged)?;
        let kind = header[156];
        // Links, devices and directories have no content, whatever size they name.
        let size =
            if (b'1'..=b'6').contains(&kind) { 0 } else { long_size.take().filter(|_| kind != b'x').unwrap_or(size) };
        if matches!(kind, b'x' | b'L') && size <= LONGEST {
            let mut text = Vec::new();
            tee.by_ref().take(size).read_to_end(&mut text)?;
            match kind {
                b'L' => long_name = Some(text_of(&text)),
                _ => {
                    long_name = pax(&text, "path").map(text_of).or(long_name);
                    long_size = pax(&text, "size").and_then(|size| text_of(size).parse().ok());
                }
            }
        } else {
            if kind == b'S' {
                sparse_map(tee, header[482] != 0)?;
            }
            let name = long_name.take().unwrap_or_else(|| name_of(&header));
            let mut content = tee.by_ref().take(size);
            content.get_mut().muted = true;
            let read = members.stored(&name, &mut content);
            // What was not read as a member is still searched as a part of the archive.
            content.get_mut().muted = false;
            io::copy(&mut content, &mut io::sink())?;
            let missing = content.limit();
            read?;
            if missing > 0 {
                return Err(damaged());
            }
        }
        let padding = size.next_multiple_of(BLOCK as u64) - size;
        io::copy(&mut tee.by_ref().take(padding), &mut io::sink())?;
    }
    Ok(())
}

/// Reads a header; false at the end.
fn read_block<R: Read>(tee: &mut Tee<'_, '_, R>, block: &mut [u8; BLOCK]) -> io::Result<bool> {
    let mut count = 0;
    while count < BLOCK {
        match tee.read(&mut block[count..])? {
            0 if count == 0 => return Ok(false),
            0 => return Err(damaged()),
            more => count += more,
        }
    }
    Ok(true)
}

/// GNU's sparse files: further blocks of the map, each of which says whether another follows.
fn sparse_map<R: Read>(tee: &mut Tee<'_, '_, R>, mut another: bool) -> io::Result<()> {
    let mut block = [0; BLOCK];
    while another && read_block(tee, &mut block)? {
        another = block[504] != 0;
    }
    Ok(())
}

fn sum_is_right(header: &[u8]) -> bool {
    let sum = |at: usize| u64::from(if (148..156).contains(&at) { b' ' } else { header[at] });
    number(&header[148..156]) == Some((0..BLOCK).map(sum).sum())
}

/// A number in octal digits, or in GNU's binary form.
fn number(field: &[u8]) -> Option<u64> {
    if let [0x80, bytes @ ..] = field {
        return bytes.iter().try_fold(0_u64, |number, byte| Some(number.checked_mul(256)? | u64::from(*byte)));
    }
    let text = std::str::from_utf8(field).ok()?;
    let digits = text.trim_matches(|character| matches!(character, ' ' | '\0'));
    if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, 8).ok() }
}

fn name_of(header: &[u8; BLOCK]) -> String {
    let (name, prefix) = (text_of(&header[..100]), text_of(&header[345..500]));
    match prefix.is_empty() || &header[257..262] != b"ustar" {
        true => name,
        false => format!("{prefix}/{name}"),
    }
}

fn text_of(field: &[u8]) -> String {
    let end = memchr::memchr(0, field).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

/// The value of a keyword in an extended header: lines `length keyword=value`.
fn pax<'t>(text: &'t [u8], keyword: &str) -> Option<&'t [u8]> {
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let blank = memchr::memchr(b' ', line)?;
        line[blank + 1..].strip_prefix(keyword.as_bytes())?.strip_prefix(b"=")
    })
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the tar archive is damaged or cut short")
}
