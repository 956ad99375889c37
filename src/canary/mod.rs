//! Canaries: distinctive tokens in what must not be read, and a search for them in all that a run wrote.
//!
//! `plant` puts a token into each file, in a comment where the format has them and in a file beside it where it has not.
//! `scan` finds tokens again, however they were encoded and packed, and says whether the agent has read them (a
//! transcript) or something of the harness's own has republished them (an artifact).

// What is looked for.
mod pattern;
mod token;
mod tokens_file;

// How it gets into files.
mod attributes;
mod first_lines;
mod place;
mod plant;
mod replace;
mod syntax;

// How it is found in a stream of bytes.
mod decode;
mod escapes;
mod needles;
mod search;
mod segments;

// Where streams come from.
mod beneath;
mod git_pack;
mod gzip;
mod holes;
mod inflate;
mod kind;
mod queue;
mod tar;
mod tree;
mod unpack;
mod walk;
mod zip;

// What a find means, and how it is told.
mod budget;
mod class;
mod json;
mod progress;
mod scan;

pub mod error;

pub use class::Class;
pub use error::CanaryError;
pub use plant::{PlantRequest, plant};
pub use scan::{ScanRequest, scan};
pub use token::Token;

/// All that is found of the tokens in bytes, as in a file of that name, and what of it could not be read: for tests and
/// fuzzing. Each find is the encoding's name and, from the outermost in, the names of what it is packed in.
pub fn found_in(tokens: &[Token], name: &str, bytes: &[u8], unpack_limit: u64) -> (Vec<(String, String)>, Vec<String>) {
    let needles = needles::Needles::of(tokens);
    let budget = budget::Budget::of(u64::MAX);
    let mut reader = unpack::Reader::of(&needles, &budget, unpack_limit);
    let mut source = bytes;
    let found = reader.file(name, &mut source, &[]);
    let hits = found.hits.iter().map(|hit| (hit.find.encoding.name().to_owned(), hit.within.join("!"))).collect();
    (hits, found.unread.iter().map(|unread| unread.why.clone()).collect())
}
