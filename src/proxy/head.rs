//! The request head, read once and strictly (RFC 9112), so that no two readers can see different requests in the
//! same bytes: what is parsed here is what is judged, and the head that is sent on is written anew from it.

use super::field::{Field, is_token};
use super::malformed::Malformed;

/// Most bytes of a head, from the request line to the empty line that ends it.
pub const HEAD_LIMIT: usize = 64 * 1024;

/// Most field lines of a head.
pub const FIELD_LIMIT: usize = 256;

/// Most bytes of a method's name. The longest registered with IANA has 17.
const METHOD_LIMIT: usize = 32;

/// The protocol versions served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: no chunked coding, no interim responses, no persistence.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// How a request's body is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// So many bytes.
    Length(u64),
    /// The chunked coding.
    Chunked,
}

/// A request head that can be read in one way only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The method, a token.
    pub method: String,
    /// The request target, byte for byte as it was sent: visible ASCII, not empty.
    pub target: Vec<u8>,
    /// The version of the request.
    pub version: Version,
    /// The field lines in their order.
    pub fields: Vec<Field>,
    /// Where the body ends.
    pub framing: Framing,
}

impl Head {
    /// Whether the sender wants the connection kept after this exchange (RFC 9112, 9.3). HTTP/1.0 connections
    /// are never kept.
    pub fn persists(&self) -> bool {
        self.version == Version::Http11 && !super::field::any_lists(&self.fields, "connection", "close")
    }
}

/// Looks for the end of a head in bytes that come in pieces of any size, and refuses at the first byte that no
/// head may hold.
#[derive(Debug, Default)]
pub struct HeadScan {
    /// Bytes looked at already.
    scanned: usize,
    /// Where the present line starts.
    line: usize,
    /// Where the request line starts: one empty line before it is forgiven (RFC 9112, 2.2).
    start: usize,
    /// Whether the request line has ended.
    in_fields: bool,
}

impl HeadScan {
    /// Looks at what came since the last call; `bytes` is everything read so far.
    ///
    /// Gives the range of the head once its empty line is there. Errors: a byte or a request line that no request
    /// has, or [`HEAD_LIMIT`] bytes without an end.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<Option<std::ops::Range<usize>>, Malformed> {
        while let Some(&byte) = bytes.get(self.scanned) {
            let at = self.scanned;
            if at >= HEAD_LIMIT {
                return Err(Malformed::HeadTooLarge);
            }
            self.scanned += 1;
            let after_cr = at > self.line && bytes[at - 1] == b'\r';
            match byte {
                b'\n' if !after_cr => return Err(Malformed::BareLf),
                b'\n' => {
                    let line = &bytes[self.line..at - 1];
                    let first = self.line == self.start;
                    self.line = at + 1;
                    if !self.in_fields && line.is_empty() && first && self.start == 0 {
                        self.start = self.line;
                    } else if !self.in_fields {
                        RequestLine::parse(line)?;
                        self.in_fields = true;
                    } else if line.is_empty() {
                        return Ok(Some(self.start..self.line));
                    }
                }
                _ if after_cr => return Err(Malformed::BareCr),
                b'\r' | b'\t' => {}
                0..0x20 | 0x7f => return Err(Malformed::ControlByte),
                _ => {}
            }
        }
        Ok(None)
    }
}

/// The three parts of a request line.
struct RequestLine<'a> {
    method: &'a str,
    target: &'a [u8],
    version: Version,
}

impl<'a> RequestLine<'a> {
    fn parse(line: &'a [u8]) -> Result<RequestLine<'a>, Malformed> {
        let mut parts = line.split(|&b| b == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Malformed::RequestLine);
        };
        let token = !method.is_empty() && method.iter().all(|&b| is_token(b));
        if !token || method.len() > METHOD_LIMIT {
            return Err(Malformed::RequestLine);
        }
        if target.is_empty() || !target.iter().all(|b| b.is_ascii_graphic()) {
            return Err(Malformed::Target);
        }
        let version = match version {
            b"HTTP/1.1" => Version::Http11,
            b"HTTP/1.0" => Version::Http10,
            _ => return Err(Malformed::Version),
        };
        let method = std::str::from_utf8(method).map_err(|_| Malformed::RequestLine)?;
        Ok(RequestLine { method, target, version })
    }
}

/// Reads a whole head, as [`HeadScan`] delimits it.
pub fn parse(bytes: &[u8]) -> Result<Head, Malformed> {
    let mut lines = lines(bytes)?.into_iter();
    let line = RequestLine::parse(lines.next().ok_or(Malformed::RequestLine)?)?;
    if line.method.eq_ignore_ascii_case("TRACE") {
        return Err(Malformed::Trace);
    }
    let mut fields = Vec::new();
    let mut raw_codings = Vec::new();
    for text in lines {
        if fields.len() == FIELD_LIMIT {
            return Err(Malformed::TooManyFields);
        }
        let field = field(text)?;
        if field.is("transfer-encoding") {
            raw_codings.push(&text[field.name.len() + 1..]);
        }
        fields.push(field);
    }
    let framing = framing(&fields, &raw_codings, line.version)?;
    if line.method == "CONNECT" && fields.iter().any(|f| f.is("content-length")) {
        return Err(Malformed::ConnectBody);
    }
    if line.method == "CONNECT" && framing == Framing::Chunked {
        return Err(Malformed::ConnectBody);
    }
    let hosts = fields.iter().filter(|f| f.is("host")).count();
    if hosts > 1 || (hosts == 0 && line.version == Version::Http11) {
        return Err(Malformed::Host);
    }
    if fields.iter().any(|f| f.is("expect") && !f.value.eq_ignore_ascii_case(b"100-continue")) {
        return Err(Malformed::Expect);
    }
    Ok(Head { method: line.method.to_owned(), target: line.target.to_vec(), version: line.version, framing, fields })
}

/// The lines of a head without their CRLF, the empty one at its end left out.
fn lines(bytes: &[u8]) -> Result<Vec<&[u8]>, Malformed> {
    let mut lines = Vec::new();
    let mut rest = bytes;
    loop {
        let end = rest.iter().position(|&b| b == b'\n').ok_or(Malformed::RequestLine)?;
        let line = rest[..end].strip_suffix(b"\r").ok_or(Malformed::BareLf)?;
        rest = &rest[end + 1..];
        match (line.is_empty(), rest.is_empty()) {
            (true, true) => return Ok(lines),
            (true, false) => return Err(Malformed::RequestLine),
            (false, _) => lines.push(line),
        }
    }
}

/// One field line. A request's, or one of a trailer section.
pub fn field(line: &[u8]) -> Result<Field, Malformed> {
    if line.first().is_some_and(|b| matches!(b, b' ' | b'\t')) {
        return Err(Malformed::FoldedField);
    }
    let colon = line.iter().position(|&b| b == b':').ok_or(Malformed::FieldName)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.is_empty() || !name.iter().all(|&b| is_token(b)) {
        return Err(Malformed::FieldName);
    }
    if value.iter().any(|&b| (b < 0x20 && b != b'\t') || b == 0x7f) {
        return Err(Malformed::ControlByte);
    }
    Ok(Field { name: String::from_utf8_lossy(name).into_owned(), value: value.trim_ascii().to_vec() })
}

/// Where the body ends; anything that two readers could read differently is refused (RFC 9112, 6.1 and 6.3).
///
/// The coding must be spelled `chunked`, in lower case, with nothing but one space before it: tabs, lists, other
/// cases and a second line are what smuggling is made of, and no client sends them.
fn framing(fields: &[Field], codings: &[&[u8]], version: Version) -> Result<Framing, Malformed> {
    let lengths: Vec<&Field> = fields.iter().filter(|f| f.is("content-length")).collect();
    match (lengths.as_slice(), codings) {
        ([], []) => Ok(Framing::None),
        ([length], []) => {
            let digits = !length.value.is_empty() && length.value.iter().all(u8::is_ascii_digit);
            std::str::from_utf8(&length.value)
                .ok()
                .filter(|_| digits)
                .and_then(|text| text.parse::<u64>().ok())
                .map(Framing::Length)
                .ok_or(Malformed::ContentLength)
        }
        ([], [b" chunked" | b"chunked"]) if version == Version::Http11 => Ok(Framing::Chunked),
        ([], _) => Err(Malformed::TransferEncoding),
        (_, []) => Err(Malformed::ContentLength),
        (_, _) => Err(Malformed::LengthAndCoding),
    }
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
