//! One record as the cells of a table's row.

use crate::ledger::escape::printable;
use crate::ledger::record::{Body, Denial, Object, Record};
use std::net::{IpAddr, Ipv6Addr};

/// How many columns a row has.
pub(super) const COLUMNS: usize = 9;

/// Their headings.
pub(super) const HEADINGS: [&str; COLUMNS] =
    ["TIME", "KIND", "AXIS", "MECHANISM", "OPERATION", "OBJECT", "RULE", "ANSWER", "TRY"];

/// The widest a column gets, in characters; what is longer is cut.
pub(super) const WIDEST: [usize; COLUMNS] = [12, 14, 10, 16, 24, 64, 24, 12, 12];

/// A row's cells: printable, bounded, never empty.
pub(super) type Row = [String; COLUMNS];

/// The row of a record, or none for a record that the head and the summary tell: the start, the seal, a passed probe.
pub(super) fn row(record: &Record, start_ns: u64) -> Option<Row> {
    let axis = record.body.axis().map_or("all", |axis| axis.name()).to_owned();
    let cells = match &record.body {
        Body::Start(_) | Body::Seal(_) => return None,
        Body::Probe(probe) if probe.passed => return None,
        Body::Probe(probe) => {
            let text = format!("expected {}, seen {}", probe.expected, probe.seen);
            [axis, probe.class.clone(), probe.id.clone(), text, none(), "FAILED".to_owned(), none()]
        }
        Body::Denial(denial) | Body::WouldDeny(denial) => denied(denial, axis),
        Body::Read(read) => {
            let times = if read.count > 1 { format!("x{}", read.count) } else { none() };
            [axis, none(), read.operation.clone(), object(&read.object), none(), none(), times]
        }
        Body::Gap(gap) => {
            let text = format!("{} lost: {}", gap.lost, gap.cause);
            [axis, gap.source.clone(), none(), text, none(), none(), none()]
        }
        Body::Infrastructure(failure) => {
            let text = format!("{} ({})", object(&failure.object), failure.cause);
            [axis, none(), failure.operation.clone(), text, none(), answer(None, failure.http_status), none()]
        }
        Body::Abort(abort) => [axis, none(), none(), abort.cause.clone(), none(), none(), none()],
    };
    let [axis, mechanism, operation, object, rule, answer, tries] = cells;
    let kind = record.body.kind().to_owned();
    let row = [offset(record.mono_ns, start_ns), kind, axis, mechanism, operation, object, rule, answer, tries];
    let mut widest = WIDEST.into_iter();
    Some(row.map(|cell| bounded(&cell, widest.next().unwrap_or(1))))
}

fn denied(denial: &Denial, axis: String) -> [String; COLUMNS - 2] {
    let attempt = match denial.attempt {
        0 => none(),
        n => n.to_string(),
    };
    let tries = match denial.count {
        1 => attempt,
        n => format!("{attempt} x{n}"),
    };
    [
        axis,
        denial.mechanism.name().to_owned(),
        denial.operation.clone(),
        object(&denial.object),
        denial.rule.clone(),
        match answer(denial.errno.as_deref(), denial.http_status) {
            // What a shadow has told of it, who has answered nothing.
            would_be if denial.is_let_through() && would_be != none() => format!("({would_be})"),
            answer => answer,
        },
        tries,
    ]
}

fn none() -> String {
    "-".to_owned()
}

fn answer(errno: Option<&str>, status: Option<u16>) -> String {
    match (errno, status) {
        (Some(errno), _) => errno.to_owned(),
        (None, Some(status)) => status.to_string(),
        (None, None) => none(),
    }
}

/// Seconds since the start, to the millisecond.
fn offset(at: u64, start: u64) -> String {
    let ms = at.saturating_sub(start) / 1_000_000;
    format!("+{}.{:03}", ms / 1000, ms % 1000)
}

fn object(object: &Object) -> String {
    let port = object.port.map(|port| format!(":{port}")).unwrap_or_default();
    let addrs: Vec<String> = object.addrs.iter().map(IpAddr::to_string).collect();
    let host = object.host.as_ref().map(|host| match host.parse::<Ipv6Addr>() {
        Ok(addr) => format!("[{addr}]"),
        Err(_) => host.clone(),
    });
    let place = match (&host, &object.addrs[..]) {
        (Some(host), []) => format!("{host}{port}"),
        (Some(host), _) => format!("{host}{port} = {}", addrs.join(",")),
        (None, [IpAddr::V6(addr)]) => format!("[{addr}]{port}"),
        (None, _) => format!("{}{port}", addrs.join(",")),
    };
    let to = object.to.as_ref().map(|to| format!("-> {to}"));
    let parts = [Some(place), object.path.clone(), to, object.text.clone()];
    let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}

/// A cell of at most `width` characters; a cut one ends in two dots.
pub(super) fn bounded(text: &str, width: usize) -> String {
    let text = printable(text);
    match text.chars().count() {
        0 => none(),
        n if n <= width => text.into_owned(),
        _ => text.chars().take(width.saturating_sub(2)).chain("..".chars()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_read_as_they_were_asked_for() {
        let full = |host: Option<&str>, port, addrs: &[&str], path: Option<&str>, text: Option<&str>| {
            object(&Object {
                host: host.map(Into::into),
                port,
                addrs: addrs.iter().map(|a| a.parse().unwrap()).collect(),
                path: path.map(Into::into),
                text: text.map(Into::into),
                ..Object::default()
            })
        };
        assert_eq!(full(Some("a.test"), Some(443), &[], None, None), "a.test:443");
        let resolved = full(Some("a.test"), Some(443), &["10.0.0.5", "::1"], None, None);
        assert_eq!(resolved, "a.test:443 = 10.0.0.5,::1");
        assert_eq!(full(None, Some(53), &["127.0.0.11"], None, None), "127.0.0.11:53");
        assert_eq!(full(None, Some(53), &["fd00::1"], None, None), "[fd00::1]:53");
        assert_eq!(full(None, None, &[], Some("/usr/x"), None), "/usr/x");
        assert_eq!(full(None, None, &[], None, Some("a@b:443")), "a@b:443");
    }

    #[test]
    fn cells_are_bounded_printable_and_never_empty() {
        assert_eq!(bounded("", 5), "-");
        assert_eq!(bounded("abcde", 5), "abcde");
        assert_eq!(bounded("abcdef", 5), "abc..");
        assert_eq!(bounded("a\u{1b}[m", 20), "a\\x1b[m");
        assert_eq!(offset(5_000_000_000, 3_998_000_000), "+1.002");
        assert_eq!(offset(1, 2), "+0.000");
    }
}
