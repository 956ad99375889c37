use super::*;

const MAKER: (u32, u32) = (700, 10_001);
const OURS: u64 = 0x10;

fn hear(refusals: &mut Refusals, serial: u64, tells: Tells) -> Option<Denial> {
    refusals.hear(Record { serial, tells })
}

fn allocated(domain: u64, (pid, uid): (u32, u32)) -> Tells {
    Tells::Allocated { domain, pid, uid }
}

fn refused(domain: u64) -> Tells {
    Tells::Refused { domain, what: Refused::AbstractSocket { name: Some(b"a\nb".to_vec()) } }
}

fn caller(pid: u32) -> Tells {
    Tells::Caller(Caller { pid: Some(pid), uid: Some(MAKER.1), comm: Some(b"sh".to_vec()), exe: None })
}

/// Of a command whose own look, told before its domain is, is not to be recorded.
fn begun() -> Refusals {
    let mut refusals = Refusals::of(MAKER.0, MAKER.1);
    assert_eq!(hear(&mut refusals, 1, refused(OURS)), None);
    assert_eq!(hear(&mut refusals, 1, allocated(OURS, MAKER)), None);
    assert_eq!(hear(&mut refusals, 1, caller(MAKER.0)), None);
    assert_eq!(hear(&mut refusals, 1, Tells::End), None);
    refusals
}

#[test]
fn a_refusal_has_the_caller_of_its_own_event() {
    let mut refusals = begun();
    assert_eq!(hear(&mut refusals, 5, refused(OURS)), None);
    assert_eq!(hear(&mut refusals, 6, refused(OURS)), None);
    assert_eq!(hear(&mut refusals, 4, caller(1)), None, "someone else's");
    let second = hear(&mut refusals, 6, caller(702)).unwrap();
    assert_eq!((second.subject.pid, second.subject.comm.as_deref()), (Some(702), Some("sh")));
    assert_eq!((second.operation.as_str(), second.object.text.as_deref()), ("connect", Some("a\\x0ab")));
    assert_eq!((second.rule.as_str(), second.errno.as_deref(), second.axis), ("scope", Some("EPERM"), Axis::Privilege));
    assert_eq!(hear(&mut refusals, 6, Tells::End), None);
    assert_eq!(hear(&mut refusals, 5, Tells::End).unwrap().subject, Subject::default());
    assert_eq!(refusals.due(), None);
    assert_eq!(refusals.missing(), None);
}

#[test]
fn one_whose_call_is_not_told_of_goes_on_without_a_caller() {
    let mut refusals = begun();
    hear(&mut refusals, 5, refused(OURS));
    let due = refusals.due().unwrap();
    assert_eq!(refusals.overdue(Some(due - CALLER)).len(), 0);
    assert_eq!(refusals.overdue(Some(due)).len(), 1);
    for serial in 0..WAITING as u64 {
        assert_eq!(hear(&mut refusals, 10 + serial, refused(OURS)), None);
    }
    assert!(hear(&mut refusals, 9, refused(OURS)).is_some(), "one more than may wait");
    assert_eq!(refusals.overdue(None).len(), WAITING);
}

#[test]
fn other_domains_are_none_of_ours() {
    let mut refusals = begun();
    hear(&mut refusals, 2, allocated(0x20, (701, MAKER.1)));
    hear(&mut refusals, 3, allocated(0x30, (MAKER.0, 0)));
    hear(&mut refusals, 4, allocated(0x40, MAKER));
    for (serial, domain) in [(5, 0x20), (6, 0x30), (7, 0x40)] {
        hear(&mut refusals, serial, refused(domain));
        hear(&mut refusals, serial, Tells::Deallocated { domain, denials: 99 });
    }
    assert_eq!((refusals.due(), refusals.is_over(), refusals.missing()), (None, false, None));
}

#[test]
fn the_domains_own_count_says_how_much_of_a_loss_was_ours() {
    for (denials, missing) in [(2, None), (7, Some(5))] {
        let mut refusals = begun();
        hear(&mut refusals, 5, refused(OURS));
        refusals.doubt("first");
        refusals.doubt("second");
        assert_eq!(refusals.missing(), Some((0, "first".into())), "not known yet");
        hear(&mut refusals, 6, Tells::Deallocated { domain: OURS, denials });
        assert_eq!(refusals.missing(), missing.map(|lost| (lost, "first".into())));
    }
}

#[test]
fn a_command_whose_domain_was_never_told_of_is_a_gap() {
    let refusals = Refusals::of(MAKER.0, MAKER.1);
    assert_eq!(refusals.missing().map(|(lost, _)| lost), Some(0));
    let mut changed = begun();
    hear(&mut changed, 8, Tells::ConfigChange);
    assert!(changed.in_doubt());
}
