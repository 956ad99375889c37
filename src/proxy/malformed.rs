//! Why bytes are no request that can be judged.

use super::socks::BadSocks;
use crate::policy::authority::BadAuthority;

/// What is wrong with a request. Such a request is answered 400, recorded under the rule `malformed`, and no name
/// in it is resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A line feed without a carriage return before it.
    #[error("a line ends in a bare LF")]
    BareLf,
    /// A carriage return without a line feed after it.
    #[error("a bare CR stands in the head")]
    BareCr,
    /// NUL or another control byte.
    #[error("a control byte stands in the head")]
    ControlByte,
    /// More than [`super::head::HEAD_LIMIT`] bytes without an end.
    #[error("the head is longer than 64 KiB")]
    HeadTooLarge,
    /// Not `METHOD SP TARGET SP VERSION`.
    #[error("the request line is not `METHOD TARGET VERSION` with single spaces")]
    RequestLine,
    /// A target with bytes that are not visible ASCII, or a fragment.
    #[error("the request target holds a byte that no target may hold")]
    Target,
    /// A version other than HTTP/1.0 and HTTP/1.1.
    #[error("the version is neither HTTP/1.0 nor HTTP/1.1")]
    Version,
    /// The TRACE method: it would echo what the proxy adds and drops.
    #[error("TRACE is not served")]
    Trace,
    /// A field name that is no token, or no colon right after it.
    #[error("a field line has no token directly before its colon")]
    FieldName,
    /// A field line that goes on in the next (obs-fold, RFC 9112, 5.2).
    #[error("a field line is folded")]
    FoldedField,
    /// More than [`super::head::FIELD_LIMIT`] field lines.
    #[error("the head has more than 256 fields")]
    TooManyFields,
    /// No Host in HTTP/1.1, or more than one.
    #[error("the head has no Host, or more than one")]
    Host,
    /// A transfer coding other than exactly `chunked`, more than one, or one in HTTP/1.0.
    #[error("the transfer coding is not exactly `chunked` in one HTTP/1.1 field")]
    TransferEncoding,
    /// A length that is no decimal number below 2^64, or more than one length.
    #[error("the content length is not one decimal number")]
    ContentLength,
    /// A length and a coding.
    #[error("the head has a content length and a transfer coding")]
    LengthAndCoding,
    /// An expectation other than `100-continue`.
    #[error("the expectation is not 100-continue")]
    Expect,
    /// A CONNECT with a body, or with bytes after its head.
    #[error("CONNECT came with a body")]
    ConnectBody,
    /// A target that is not in absolute form, or not in authority form for CONNECT.
    #[error("the request target is not in the form that a proxy is asked in")]
    TargetForm,
    /// A scheme other than `http`.
    #[error("the scheme is not http")]
    Scheme,
    /// A chunk's size, its end, or the trailer section.
    #[error("the chunked body is not well formed")]
    Chunk,
    /// A SOCKS message.
    #[error(transparent)]
    Socks(#[from] BadSocks),
    /// The authority does not parse.
    #[error(transparent)]
    Authority(#[from] BadAuthority),
}

impl Malformed {
    /// The class of the reason, as records carry it.
    pub fn reason(&self) -> &'static str {
        match self {
            Malformed::BareLf => "bare_lf",
            Malformed::BareCr => "bare_cr",
            Malformed::ControlByte => "control_byte",
            Malformed::HeadTooLarge => "head_too_large",
            Malformed::RequestLine => "bad_request_line",
            Malformed::Target => "bad_target",
            Malformed::Version => "bad_version",
            Malformed::Trace => "trace_method",
            Malformed::FieldName => "bad_field_name",
            Malformed::FoldedField => "folded_field",
            Malformed::TooManyFields => "too_many_fields",
            Malformed::Host => "bad_host_field",
            Malformed::TransferEncoding => "bad_transfer_encoding",
            Malformed::ContentLength => "bad_content_length",
            Malformed::LengthAndCoding => "length_and_coding",
            Malformed::Expect => "bad_expect",
            Malformed::ConnectBody => "connect_with_body",
            Malformed::TargetForm => "target_form",
            Malformed::Scheme => "scheme",
            Malformed::Chunk => "bad_chunk",
            Malformed::Socks(bad) => bad.reason(),
            Malformed::Authority(bad) => bad.reason(),
        }
    }
}
