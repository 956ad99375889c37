//! What a refusal says of itself where the policy has it explained: one line of text, and a field by which a reader who has
//! the record tells the proxy's refusals from a server's.

use super::judge::Refusal;
use super::malformed::Malformed;
use super::record::RULE_MALFORMED;
use crate::ledger::LedgerError;
use crate::ledger::chain::random_hex;
use crate::policy::Authority;
use std::net::IpAddr;

/// The field, in lower case. Nobody else's is passed on, in either direction.
pub const FIELD: &str = "ringfence-refusal";

/// Most bytes of what a client sent that are shown, before they are escaped.
const SHOWN: usize = 200;

/// Most addresses, and most ways to admit them, that are told.
const TOLD: usize = 8;

/// 128 random bits, made for one run, shown as 32 hexadecimal digits in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalNonce(String);

impl RefusalNonce {
    /// A new one from getrandom(2).
    pub fn random() -> Result<RefusalNonce, LedgerError> {
        random_hex::<16>().map(RefusalNonce)
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a well-formed request is refused. `ways` would admit it.
pub fn refused(operation: &str, authority: &Authority, refusal: &Refusal, ways: &[String]) -> String {
    let addrs: Vec<String> = refusal.addrs.iter().map(IpAddr::to_string).collect();
    let at = if addrs.is_empty() { String::new() } else { format!(" ({})", some_of(&addrs)) };
    let ways = if ways.is_empty() { "no flag".to_owned() } else { some_of(ways) };
    format!(
        "ringfence: {operation} {authority}{at} is refused: rule {}, reason {}; to admit it: {ways}\n",
        refusal.rule, refusal.reason
    )
}

/// Why bytes are no request. `text` is what was sent, or its start.
pub fn malformed(text: &[u8], why: &Malformed) -> String {
    let shown = text[..text.len().min(SHOWN)].escape_ascii();
    let more = if text.len() > SHOWN { "..." } else { "" };
    let reason = why.reason();
    format!(
        "ringfence: \"{shown}{more}\" is refused: rule {RULE_MALFORMED}, reason {reason} ({why}); to admit it: no flag\n"
    )
}

fn some_of(items: &[String]) -> String {
    let shown = items[..items.len().min(TOLD)].join(", ");
    match items.len().saturating_sub(TOLD) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_sent_is_printable_and_bounded() {
        let sent = [b"GET \"\\\0\r\n\x1b[31m\xe2\x80\xae".as_slice(), &[b'x'; 9000]].concat();
        let text = malformed(&sent, &Malformed::ControlByte);
        assert!(text.starts_with(r#"ringfence: "GET \"\\\x00\r\n\x1b[31m\xe2\x80\xaex"#), "{text}");
        assert!(text.ends_with("reason control_byte (a control byte stands in the head); to admit it: no flag\n"));
        assert!(text.contains("x...\" is refused") && text.len() < 1024, "{text}");
        assert!(text.trim_end_matches('\n').bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{text}");
    }

    #[test]
    fn many_addresses_are_told_in_part() {
        let addrs: Vec<IpAddr> = (0..20).map(|n| IpAddr::from([10, 0, 0, n])).collect();
        let ways: Vec<String> = addrs.iter().map(|addr| format!("--trust-range {addr}/32")).collect();
        let refusal = Refusal { rule: "private-range".into(), reason: "denied_address".into(), addrs };
        let authority = Authority::parse_connect(b"in.test:443").unwrap();
        let text = refused("CONNECT", &authority, &refusal, &ways);
        assert!(text.starts_with("ringfence: CONNECT in.test:443 (10.0.0.0, "), "{text}");
        assert!(text.contains("10.0.0.7 and 12 more) is refused: rule private-range"), "{text}");
        assert!(text.ends_with("--trust-range 10.0.0.7/32 and 12 more\n"), "{text}");
    }

    #[test]
    fn nonces_are_thirty_two_digits_and_differ() {
        let (a, b) = (RefusalNonce::random().unwrap(), RefusalNonce::random().unwrap());
        assert!(a != b && a.as_str().len() == 32 && a.as_str().bytes().all(|b| b"0123456789abcdef".contains(&b)));
    }
}
