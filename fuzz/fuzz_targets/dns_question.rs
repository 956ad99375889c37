//! A question of the DNS is read as its name and type alone, whatever lies behind it, and each answer repeats it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence::proxy::transparent::question::{Question, ResponseCode};

const HEADER: usize = 12;

fuzz_target!(|bytes: &[u8]| {
    let question = match Question::read(bytes) {
        Ok(question) => question,
        Err(bad) => {
            assert!(bad.answer(bytes).is_none_or(|answer| answer.len() == HEADER && answer[..2] == bytes[..2]));
            return;
        }
    };
    assert!(question.name.len() <= 253 && question.name.split(|byte| *byte == b'.').all(|label| label.len() <= 63));
    let refused = question.answer(ResponseCode::Refused);
    let served = question.answer_with([198, 18, 0, 1].into(), 60);
    assert_eq!((refused[2] & 0x80, refused[3] & 0xf, served[7]), (0x80, 5, 1));
    assert!(bytes.len() >= refused.len() && bytes[HEADER..refused.len()] == refused[HEADER..]);
    assert_eq!(served.len(), refused.len() + 16);
    // An answer is no question, and what is behind a question is none of it.
    assert!(Question::read(&refused).is_err());
    let cut = &bytes[..refused.len()];
    assert!(Question::read(cut).is_ok_and(|again| (again.name, again.kind) == (question.name, question.kind)));
});
