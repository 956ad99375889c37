//! Response heads: read from the server, and written anew for the client.

use super::field::{Field, end_to_end};
use super::head::{FIELD_LIMIT, HEAD_LIMIT};

/// How a response's body is delimited (RFC 9112, 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseFraming {
    /// There is none.
    None,
    /// So many bytes.
    Length(u64),
    /// The chunked coding.
    Chunked,
    /// Everything up to the connection's end.
    UntilEnd,
}

/// A response head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status code, 100 to 999.
    pub status: u16,
    /// The reason phrase.
    pub reason: String,
    /// The field lines in their order.
    pub fields: Vec<Field>,
}

/// Why bytes are no response that can be passed on. The client is given 502.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadResponse {
    /// The server closed before its head had ended.
    #[error("the server closed before the end of its response head")]
    Closed,
    /// More than 64 KiB or 256 fields.
    #[error("the response head is longer than 64 KiB or has more than 256 fields")]
    TooLarge,
    /// The head does not parse.
    #[error("the response head does not parse: {0}")]
    Syntax(httparse::Error),
    /// A body whose end two readers could see in two places.
    #[error("the length of the response body is ambiguous")]
    Framing,
    /// A switch of protocols that was not asked for.
    #[error("the server switched protocols unasked")]
    UnaskedSwitch,
    /// More interim responses than any server sends.
    #[error("the server sent more than 16 interim responses")]
    Interim,
}

impl ResponseHead {
    /// Reads a head from the start of `bytes`: with its length when it is whole, else nothing.
    pub fn parse(bytes: &[u8]) -> Result<Option<(ResponseHead, usize)>, BadResponse> {
        let mut storage = [httparse::EMPTY_HEADER; FIELD_LIMIT];
        let mut response = httparse::Response::new(&mut storage);
        let length = match response.parse(bytes) {
            Ok(httparse::Status::Complete(length)) if length <= HEAD_LIMIT => length,
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_LIMIT => return Ok(None),
            Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(BadResponse::TooLarge),
            Err(e) => return Err(BadResponse::Syntax(e)),
        };
        let head = ResponseHead {
            status: response.code.unwrap_or_default(),
            reason: response.reason.unwrap_or_default().to_owned(),
            fields: response
                .headers
                .iter()
                .map(|h| Field { name: h.name.to_owned(), value: h.value.trim_ascii().to_vec() })
                .collect(),
        };
        Ok(Some((head, length)))
    }

    /// Whether another response follows for the same request.
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }

    /// Where the body of a response to this method ends.
    pub fn framing(&self, method: &str) -> Result<ResponseFraming, BadResponse> {
        let named = |name: &'static str| self.fields.iter().filter(move |f| f.is(name));
        let mut lengths = named("content-length").map(|f| &f.value);
        let length = lengths.next();
        if lengths.any(|other| Some(other) != length) {
            return Err(BadResponse::Framing);
        }
        let codings: Vec<&Field> = named("transfer-encoding").collect();
        if method == "HEAD" || self.status < 200 || matches!(self.status, 204 | 304) {
            return Ok(ResponseFraming::None);
        }
        match (length, codings.as_slice()) {
            (None, []) => Ok(ResponseFraming::UntilEnd),
            (None, [coding]) if coding.value.eq_ignore_ascii_case(b"chunked") => Ok(ResponseFraming::Chunked),
            (Some(length), []) if length.iter().all(u8::is_ascii_digit) => std::str::from_utf8(length)
                .ok()
                .and_then(|text| text.parse().ok())
                .map(ResponseFraming::Length)
                .ok_or(BadResponse::Framing),
            _ => Err(BadResponse::Framing),
        }
    }

    /// The head as the client gets it: everything but the fields of one hop, then the lines of ours.
    pub fn for_client(&self, ours: &[&str]) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {:03} {}\r\n", self.status, self.reason).into_bytes();
        let mut length_written = false;
        for field in end_to_end(&self.fields) {
            if field.is("content-length") && std::mem::replace(&mut length_written, true) {
                continue;
            }
            put(&mut head, &field.name, &field.value);
        }
        for line in ours {
            head.extend_from_slice(line.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        head
    }
}

/// Appends one field line.
pub fn put(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> ResponseHead {
        ResponseHead::parse(text.as_bytes()).unwrap().unwrap().0
    }

    #[test]
    fn a_body_ends_in_one_place_or_the_response_is_bad() {
        use ResponseFraming::*;
        for (method, text, framing) in [
            ("GET", "HTTP/1.1 200 OK\r\n\r\n", Ok(UntilEnd)),
            ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Ok(Length(5))),
            ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", Ok(Length(5))),
            ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", Err(BadResponse::Framing)),
            ("GET", "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n", Err(BadResponse::Framing)),
            ("GET", "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", Err(BadResponse::Framing)),
            ("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", Ok(Chunked)),
            ("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", Err(BadResponse::Framing)),
            (
                "GET",
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
                Err(BadResponse::Framing),
            ),
            ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Ok(None)),
            ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", Ok(None)),
            ("GET", "HTTP/1.1 204 No Content\r\n\r\n", Ok(None)),
        ] {
            assert_eq!(head(text).framing(method), framing, "{method} {text}");
        }
    }

    #[test]
    fn a_head_goes_to_the_client_as_it_came_less_the_fields_of_one_hop() {
        let came = head(
            "HTTP/1.0 200 Fine thanks\r\nServer: x\r\nConnection: close, x-hop\r\nX-Hop: 1\r\n\
             Content-Length: 2\r\ncontent-length: 2\r\nSET-Cookie: a\r\nSet-Cookie: b\r\n\r\n",
        );
        assert_eq!(
            String::from_utf8(came.for_client(&["Connection: close"])).unwrap(),
            "HTTP/1.1 200 Fine thanks\r\nServer: x\r\nContent-Length: 2\r\nSET-Cookie: a\r\n\
             Set-Cookie: b\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn a_head_is_waited_for_and_bounded() {
        assert_eq!(ResponseHead::parse(b"HTTP/1.1 200 OK\r\nA: b"), Ok(None));
        let long = format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(HEAD_LIMIT));
        assert_eq!(ResponseHead::parse(long.as_bytes()), Err(BadResponse::TooLarge));
        assert!(matches!(ResponseHead::parse(b"SSH-2.0-x\r\n"), Err(BadResponse::Syntax(_))));
    }
}
