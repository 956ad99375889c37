//! The wall's table as an object: how it is made, watched, found again and removed. Needs root; every test has its own
//! network namespace.

mod netns;

use netns::*;
use ringfence::install::firewall::{self, FirewallError, Integrity, Loopback, WallSpec};

#[test]
fn any_change_of_the_table_is_noticed_and_seen_for_what_it_is() {
    enter();
    let tamperings = [
        "insert rule inet T judge accept",
        "flush chain inet T default-deny",
        "add rule inet T early accept",
        "add chain inet T more",
        "insert rule inet T metadata accept; add rule inet T metadata accept",
        "add table inet T { flags dormant; }",
        "delete table inet T",
        "flush ruleset",
    ];
    for tampering in tamperings {
        let wall = firewall::install(&spec()).unwrap();
        let mut watch = wall.watch().unwrap();
        assert!(!watch.drain().unwrap());
        nft("add table inet another; delete table inet another\n");
        assert!(
            !watch.drain().unwrap(),
            "another table is no concern of ours"
        );
        nft(&(tampering.replace('T', wall.table_name()) + "\n"));
        assert!(watch.drain().unwrap(), "{tampering}");
        assert!(
            matches!(wall.is_intact().unwrap(), Integrity::Altered(_)),
            "{tampering}"
        );
        assert!(!watch.drain().unwrap(), "the look itself changes nothing");
        run("nft flush ruleset");
    }
}

#[test]
fn a_rule_replaced_by_one_like_it_is_seen() {
    enter();
    let listed = WallSpec {
        loopback: Loopback::Ports(vec![8080]),
        ..spec()
    };
    let wall = firewall::install(&listed).unwrap();
    let table = wall.table_name();
    let handle = run(&format!(
        "nft -a list chain inet {table} listed-ports | grep -o 'tcp dport 8080.*handle.*' | grep -o '[0-9]*$'"
    ));
    nft(&format!(
        "replace rule inet {table} listed-ports handle {} tcp dport 8081 accept\n",
        handle.trim()
    ));
    let Integrity::Altered(difference) = wall.is_intact().unwrap() else {
        panic!("not seen")
    };
    assert!(difference.contains("listed-ports"), "{difference}");
}

#[test]
fn a_lost_notice_is_a_reason_to_look() {
    enter();
    let wall = firewall::install(&spec()).unwrap();
    let mut watch = wall.watch().unwrap();
    let flood: String = (0..40_000)
        .map(|n| format!("add chain inet another c{n}\n"))
        .collect();
    nft(&format!("add table inet another\n{flood}"));
    assert!(watch.drain().unwrap());
    assert_eq!(wall.is_intact().unwrap(), Integrity::Intact);
}

#[test]
fn the_same_run_twice_is_an_error_and_the_first_wall_stands() {
    enter();
    let wall = firewall::install(&spec()).unwrap();
    let error = firewall::install(&spec()).unwrap_err();
    assert!(
        matches!(&error, FirewallError::Refused { source, .. } if source.raw_os_error() == Some(libc::EEXIST)),
        "{error}"
    );
    assert_eq!(wall.is_intact().unwrap(), Integrity::Intact);
}

#[test]
fn a_spec_that_cannot_be_held_is_refused_before_anything_is_installed() {
    enter();
    let proxy = |p: &str| Some(p.parse().unwrap());
    let wrong = [
        WallSpec { uid: 0, ..spec() },
        WallSpec {
            run: "x".into(),
            ..spec()
        },
        WallSpec {
            proxy: proxy("11.22.33.2:3128"),
            ..spec()
        },
        WallSpec {
            proxy: proxy("127.0.0.1:0"),
            ..spec()
        },
        WallSpec {
            proxy: proxy("127.0.0.1:53"),
            ..spec()
        },
        WallSpec {
            proxy: proxy("127.0.0.1:8500"),
            control_plane_ports: vec![8500],
            ..spec()
        },
    ];
    for spec in wrong {
        assert!(
            matches!(firewall::install(&spec), Err(FirewallError::Spec { .. })),
            "{spec:?}"
        );
    }
    assert_eq!(run("nft list ruleset"), "");
}

#[test]
fn two_hundred_walls_leave_nothing() {
    enter();
    for _ in 0..200 {
        firewall::install(&spec()).unwrap().remove().unwrap();
    }
    assert_eq!(run("nft list ruleset"), "");
}

#[test]
fn tables_that_were_left_are_found_and_removed_and_no_others() {
    enter();
    nft("add table inet other; add table ip ringfence-1-0123456789abcdef\n");
    drop(firewall::install(&spec()).unwrap());
    let stale = firewall::stale_tables().unwrap();
    assert_eq!(stale.len(), 1);
    assert_eq!((stale[0].uid, stale[0].run.as_str()), (UID, RUN));
    assert!(matches!(
        firewall::remove_table("other"),
        Err(FirewallError::Spec { .. })
    ));
    firewall::remove_table(&stale[0].name).unwrap();
    assert_eq!(firewall::stale_tables().unwrap(), []);
    assert!(run("nft list tables").contains("table inet other"));
}

#[test]
fn support_is_found_by_trying_and_nothing_is_left_or_announced() {
    enter();
    let mut watch = firewall::Watch::open("ringfence-probe").unwrap();
    let support = firewall::probe_support().unwrap();
    assert!(support.complete(), "{support:?}");
    assert_eq!(run("nft list ruleset"), "");
    assert!(!watch.drain().unwrap());
}

#[test]
fn without_the_right_to_change_the_firewall_support_is_missing_and_says_why() {
    enter();
    nix::unistd::setresuid(UID.into(), UID.into(), UID.into()).unwrap();
    let support = firewall::probe_support().unwrap();
    assert!(
        !support.complete() && !support.nftables && !support.nflog,
        "{support:?}"
    );
    assert!(
        support.missing.iter().any(|m| m.contains("not permitted")),
        "{support:?}"
    );
    assert!(firewall::install(&spec()).is_err());
}
