//! What attribution reads: a thread's name and arguments are the command's own making and stand among the kernel's fields.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringfence::ledger::escape::is_hidden;
use ringfence::observe::socket_owner::{row, table};
use ringfence::observe::subject::{ARGUMENT_LIMIT, ARGUMENTS_TEXT_LIMIT, Stat, Status, arguments};

fuzz_target!(|bytes: &[u8]| {
    let entire = bytes.first().is_some_and(|byte| byte & 1 == 0);
    if let Some(shown) = arguments(bytes, entire) {
        assert!(shown.len() <= ARGUMENT_LIMIT + 1);
        assert!(shown.iter().map(String::len).sum::<usize>() <= ARGUMENTS_TEXT_LIMIT + 64);
        assert!(!shown.iter().any(|text| text.chars().any(is_hidden)));
    }

    // Whatever the name is, the fields are those after it.
    let name = &bytes[..bytes.len().min(64)];
    let line = [b"41 (", name, b") S 40 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 3 0 77"].concat();
    let stat = Stat::parse(&line).expect("a line of the kernel's");
    assert_eq!((stat.name.as_slice(), stat.parent, stat.threads), (name, 40, 3));
    let text = [b"Name:\t", bytes, b"\nTgid:\t41\nUid:\t7\t8\t9\t10\n"].concat();
    let status = Status::parse(&text).expect("a text of the kernel's");
    assert_eq!((status.process, status.uids), (41, [7, 8, 9, 10]));

    assert!(Stat::parse(bytes).is_none_or(|stat| stat.name.len() < bytes.len()));
    assert!(Status::parse(bytes).is_none_or(|_| bytes.len() > 10));
    assert!(row(bytes).is_none_or(|row| bytes.len() >= 72 && row.local.is_ipv4() == row.remote.is_ipv4()));
    assert!(table(bytes).count() <= 1 + bytes.iter().filter(|byte| **byte == b'\n').count());
});
