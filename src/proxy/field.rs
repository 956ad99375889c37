//! Header fields, and which of them belong to one hop only (RFC 9110, 7.6.1).

use super::explain;

/// One field line, the name as it was sent and the value without the white space around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// A token (RFC 9110, 5.6.2), in the sender's case.
    pub name: String,
    /// Visible bytes, spaces and tabs; bytes from 0x80 on are opaque.
    pub value: Vec<u8>,
}

impl Field {
    /// Whether the field has this name; case does not count.
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// Whether the value, read as a comma-separated list, has this member; case does not count.
    pub fn lists(&self, member: &str) -> bool {
        members(&self.value).any(|m| m.eq_ignore_ascii_case(member.as_bytes()))
    }
}

/// The members of a comma-separated list, without white space and without the empty ones.
fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|m| !m.is_empty())
}

/// Whether any field of this name lists this member.
pub fn any_lists(fields: &[Field], name: &str, member: &str) -> bool {
    fields.iter().any(|f| f.is(name) && f.lists(member))
}

/// A byte that a token may hold (RFC 9110, 5.6.2).
pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Fields that say something about one connection and are never passed on, whoever sent them.
const ONE_HOP: [&str; 6] = ["connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// The fields that are passed on: without those of one hop, those that `Connection` names, all of `Proxy-`, and the one by
/// which the proxy's own refusals are known.
///
/// `Content-Length` stays, since a response to HEAD carries it with no body; a request's is written anew by the
/// caller, who leaves the old one out.
pub fn end_to_end(fields: &[Field]) -> impl Iterator<Item = &Field> {
    fields.iter().filter(move |field| {
        let lower = field.name.to_ascii_lowercase();
        !ONE_HOP.contains(&lower.as_str())
            && !lower.starts_with("proxy-")
            && lower != explain::FIELD
            && (lower == "content-length" || !any_lists(fields, "connection", &lower))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, value: &str) -> Field {
        Field { name: name.to_owned(), value: value.as_bytes().to_vec() }
    }

    #[test]
    fn only_end_to_end_fields_are_passed_on() {
        let fields = [
            field("Accept", "*/*"),
            field("Connection", "close, X-One-Hop ,Content-Length"),
            field("Proxy-Authorization", "Basic c2VjcmV0"),
            field("Proxy-Connection", "keep-alive"),
            field("proxy-anything", "1"),
            field("Keep-Alive", "300"),
            field("TE", "trailers"),
            field("RINGFENCE-Refusal", "1"),
            field("Trailer", "X"),
            field("Transfer-Encoding", "chunked"),
            field("UPGRADE", "h2c"),
            field("x-one-hop", "1"),
            field("Content-Length", "0"),
            field("X-Two", "2"),
        ];
        let kept: Vec<&str> = end_to_end(&fields).map(|f| f.name.as_str()).collect();
        assert_eq!(kept, ["Accept", "Content-Length", "X-Two"]);
    }

    #[test]
    fn a_list_is_read_by_its_members() {
        assert!(field("Connection", "keep-alive,  Upgrade").lists("upgrade"));
        assert!(!field("Connection", "keep-alive-upgrade").lists("upgrade"));
        assert!(!field("Connection", " , ").lists(""));
    }
}
