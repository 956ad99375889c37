//! `ringfence canary scan` over what nobody has planted anything in.

#[allow(dead_code, reason = "each user has its own part")]
mod canary;

use canary::json;

#[test]
fn what_a_distribution_ships_holds_no_token() {
    let (lines, status) =
        json(&["scan", "--json", "--pattern", "CANARY_[a-z0]bcdef_x", "--token", "26b5c67b-86e4", "/usr/share/doc"]);
    let summary = lines.last().unwrap();
    assert!(summary["files"].as_u64() > Some(50), "{summary}");
    assert_eq!(summary["hits"], 0, "{lines:?}");
    assert!([0, 2].contains(&status));
}
