//! HTTP/1.1 as an origin speaks it (RFC 9112): one request after another on a connection, all kept.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;

/// The longest head that is read, in bytes.
const MAX_HEAD: usize = 256 << 10;

/// A request as it arrived at an origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Who sent it.
    pub peer: SocketAddr,
    /// The address it was sent to.
    pub local: SocketAddr,
    /// The server name of the TLS handshake.
    pub server_name: Option<String>,
    /// The request line and the header lines as they came.
    pub head: String,
    /// The method.
    pub method: String,
    /// The request target as it came.
    pub target: String,
    /// The header fields: names in lower case, in the order of the lines.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// The values of a field, the name in lower case.
    pub fn field<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.fields.iter().filter(move |(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The target without its query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    fn closes(&self) -> bool {
        self.head.lines().next().is_some_and(|line| line.ends_with("HTTP/1.0"))
            || self.field("connection").any(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// What an origin answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Header fields besides Content-Length.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// Status 200 with a text body.
    pub fn text(body: impl Into<Vec<u8>>) -> Response {
        Response { status: 200, fields: vec![("content-type".to_owned(), "text/plain".to_owned())], body: body.into() }
    }

    /// A status without a body.
    pub fn status(status: u16) -> Response {
        Response { status, fields: Vec::new(), body: Vec::new() }
    }

    /// The response with one more field.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Response {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// Serves the requests of one connection until the peer closes it or asks for that.
pub(crate) fn serve(
    stream: impl Read + Write,
    about: &dyn Fn(&mut Request),
    answer: &dyn Fn(Request) -> Response,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(mut request) = read_head(&mut stream)? {
        if request.field("expect").any(|value| value.eq_ignore_ascii_case("100-continue")) {
            stream.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        request.body = read_body(&mut stream, &request)?;
        about(&mut request);
        let (closes, is_head) = (request.closes(), request.method == "HEAD");
        write(stream.get_mut(), &answer(request), closes, is_head)?;
        if closes {
            break;
        }
    }
    Ok(())
}

fn read_head(stream: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let before = head.len();
        stream.by_ref().take((MAX_HEAD - before) as u64).read_until(b'\n', &mut head)?;
        if head.len() == before {
            return if head.is_empty() { Ok(None) } else { Err(invalid("the head has no end")) };
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target)) = (first.next(), first.next()) else {
        return Err(invalid("no request line"));
    };
    let (method, target) = (method.to_owned(), target.to_owned());
    let fields = lines.filter_map(|line| line.split_once(':'));
    let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
    let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
    Ok(Some(Request {
        peer: nowhere,
        local: nowhere,
        server_name: None,
        head,
        method,
        target,
        fields,
        body: Vec::new(),
    }))
}

fn read_body(stream: &mut impl BufRead, request: &Request) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if request.field("transfer-encoding").any(|value| value.eq_ignore_ascii_case("chunked")) {
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = u64::from_str_radix(size, 16).map_err(|_| invalid("a chunk without a size"))?;
            stream.by_ref().take(size).read_to_end(&mut body)?;
            let mut end = String::new();
            stream.read_line(&mut end)?;
            if size == 0 {
                return Ok(body);
            }
        }
    }
    let length = request.field("content-length").next().map_or(Ok(0), str::parse::<u64>);
    stream.by_ref().take(length.map_err(|_| invalid("a length that is no number"))?).read_to_end(&mut body)?;
    Ok(body)
}

fn write(stream: &mut impl Write, response: &Response, closes: bool, is_head: bool) -> io::Result<()> {
    let mut bytes = format!("HTTP/1.1 {} World\r\ncontent-length: {}\r\n", response.status, response.body.len());
    for (name, value) in &response.fields {
        bytes.push_str(&format!("{name}: {value}\r\n"));
    }
    bytes.push_str(if closes { "connection: close\r\n\r\n" } else { "\r\n" });
    stream.write_all(bytes.as_bytes())?;
    if !is_head {
        stream.write_all(&response.body)?;
    }
    stream.flush()
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
