//! TLS ClientHellos made by hand (RFC 8446, 4.1.2): what no TLS library would send can then be sent too.

/// A handshake message: a ClientHello with these host names in its server_name extension, none at all where there are no
/// names.
pub fn client_hello(names: &[&[u8]]) -> Vec<u8> {
    let mut extensions = Vec::new();
    if !names.is_empty() {
        let list: Vec<u8> = names.iter().flat_map(|name| [&[0], counted(name).as_slice()].concat()).collect();
        extensions.extend(extension(0, &counted(&list)));
    }
    // signature_algorithms, supported_groups, supported_versions.
    extensions.extend(extension(13, &counted(&[4, 3, 8, 4])));
    extensions.extend(extension(10, &counted(&[0, 29])));
    extensions.extend(extension(43, &[4, 3, 4, 3, 3]));
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(0);
    body.extend(counted(&[0x13, 0x01, 0xc0, 0x2b]));
    body.extend([1, 0]);
    body.extend(counted(&extensions));
    let length = u32::try_from(body.len()).expect("a short message").to_be_bytes();
    [&[1], &length[1..], &body].concat()
}

/// The message in records of at most `size` bytes.
pub fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|piece| record(22, piece)).collect()
}

/// One record.
pub fn record(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3], counted(payload).as_slice()].concat()
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes(), counted(body).as_slice()].concat()
}

/// The bytes after their number, as two bytes.
fn counted(bytes: &[u8]) -> Vec<u8> {
    let count = u16::try_from(bytes.len()).expect("fewer than 2^16 bytes");
    [&count.to_be_bytes(), bytes].concat()
}
