use super::*;
use proptest::prelude::*;

fn now<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

/// A reader that gives its bytes in pieces of one size.
struct Pieces<'a>(&'a [u8], usize);

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        let (piece, rest) = self.0.split_at(self.0.len().min(self.1));
        buf.put_slice(piece);
        self.0 = rest;
        std::task::Poll::Ready(Ok(()))
    }
}

fn chunked(bytes: &[u8], size: usize, recode: Recode) -> (Result<(), BodyError>, Vec<u8>, Vec<u8>) {
    now(async {
        let mut from = Inflow::new(Pieces(bytes, size));
        let mut to = Vec::new();
        let done = pass_chunked(&mut from, &mut to, recode, &Pulse::new()).await;
        let mut rest = from.unused().to_vec();
        while from.more().await.unwrap() > 0 {
            rest = from.unused().to_vec();
        }
        (done, to, rest)
    })
}

#[test]
fn a_chunked_body_ends_where_its_trailer_section_ends() {
    let sent = b"3;a=b\r\nabc\r\n1\r\nd\r\n0\r\nX: y\r\n\r\nGET next";
    for size in 1..sent.len() {
        let (done, to, rest) = chunked(sent, size, Recode::Plain);
        done.unwrap();
        assert_eq!((to.as_slice(), rest.as_slice()), (b"abcd".as_slice(), b"GET next".as_slice()));
    }
    assert_eq!(chunked(sent, 99, Recode::Chunked).1, b"3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n");
}

#[test]
fn a_body_that_stops_is_not_whole() {
    let sent = b"3\r\nabc\r\n0\r\nX: y\r\n\r\n";
    for length in 0..sent.len() {
        let (done, to, _) = chunked(&sent[..length], 4, Recode::Chunked);
        assert!(matches!(done, Err(BodyError::Truncated)), "{length}");
        assert!(!to.ends_with(b"0\r\n\r\n"), "{length}");
    }
}

#[test]
fn lines_and_trailers_are_bounded() {
    let line = format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(LINE_LIMIT));
    let trailers = format!("0\r\n{}\r\n", "X: y\r\n".repeat(TRAILER_LIMIT + 1));
    for sent in [line, trailers] {
        let (done, ..) = chunked(sent.as_bytes(), 4096, Recode::Plain);
        assert!(matches!(done, Err(BodyError::Malformed(Malformed::Chunk))));
    }
}

proptest! {
    /// Data comes out as it went in, however it was cut into chunks and segments.
    #[test]
    fn chunks_carry_their_data(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 0..8), size in 1_usize..70) {
        let mut sent = Vec::new();
        for chunk in &chunks {
            sent.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
            sent.extend_from_slice(chunk);
            sent.extend_from_slice(b"\r\n");
        }
        sent.extend_from_slice(b"0\r\n\r\n");
        let (done, plain, rest) = chunked(&sent, size, Recode::Plain);
        prop_assert!(done.is_ok() && rest.is_empty());
        prop_assert_eq!(&plain, &chunks.concat());
        let (_, again, _) = chunked(&sent, size, Recode::Chunked);
        let (done, twice, _) = chunked(&again, size, Recode::Plain);
        prop_assert!(done.is_ok());
        prop_assert_eq!(twice, plain);
    }

    /// Any bytes end in an answer, and never in more data than came.
    #[test]
    fn any_bytes_at_all_are_survived(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'\r'), Just(b'\n'), Just(b'0'), Just(b'2')], 0..200)) {
        let (_, to, _) = chunked(&bytes, 7, Recode::Plain);
        prop_assert!(to.len() <= bytes.len());
    }
}
