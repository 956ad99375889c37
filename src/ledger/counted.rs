//! What is counted where there is much of the same: refusals, and reads of watched paths.

use super::parts::Parts;
use super::record::{Body, Denial, Object, PathEvent, Subject};

/// What two identical records have in common, as a hash.
pub type Key = [u8; 32];

/// The key of a record that may be counted: all that it says, but its count, its number among the tries, and of its subject
/// the arguments and the ancestors, for which the first of those that are counted together stands. None of any other.
pub fn key(body: &Body) -> Option<Key> {
    let mut parts = Parts::default();
    let (object, subject) = match body {
        Body::Denial(denial) | Body::WouldDeny(denial) => {
            let Denial {
                evidence, axis, mechanism, operation, object, errno, http_status, rule, reason, subject, ..
            } = denial;
            for word in [evidence.name(), axis.name(), mechanism.name(), operation, rule, reason] {
                parts.text(Some(word));
            }
            parts.text(errno.as_deref());
            parts.number(*http_status);
            (object, subject)
        }
        Body::Read(PathEvent { operation, object, subject, .. }) => {
            parts.text(Some("read"));
            parts.text(Some(operation));
            (object, subject)
        }
        _ => return None,
    };
    for word in [&object.host, &object.path, &object.to, &object.text, &subject.comm, &subject.exe] {
        parts.text(word.as_deref());
    }
    parts.number(object.port);
    parts.number(subject.pid);
    parts.number(subject.uid);
    parts.addresses(&object.addrs);
    Some(parts.digest())
}

impl Body {
    /// How many of the same the record stands for.
    pub(super) fn count(&self) -> u64 {
        match self {
            Body::Denial(denial) | Body::WouldDeny(denial) => denial.count,
            Body::Read(read) => read.count,
            _ => 1,
        }
    }

    /// Has it stand for so many more.
    pub(super) fn count_more(&mut self, more: u64) {
        if let Body::Denial(Denial { count, .. })
        | Body::WouldDeny(Denial { count, .. })
        | Body::Read(PathEvent { count, .. }) = self
        {
            *count = count.saturating_add(more);
        }
    }

    /// Which try at its object it is; 0 where tries are not numbered.
    pub(super) fn attempt(&self) -> u64 {
        match self {
            Body::Denial(denial) | Body::WouldDeny(denial) => denial.attempt,
            _ => 0,
        }
    }

    /// The text in a record that may be counted, in bytes of memory.
    pub(super) fn text_size(&self) -> usize {
        match self {
            Body::Denial(Denial { operation, object, errno, rule, reason, subject, .. })
            | Body::WouldDeny(Denial { operation, object, errno, rule, reason, subject, .. }) => {
                size_of_all(errno.iter().chain([operation, rule, reason]), object, subject)
            }
            Body::Read(PathEvent { operation, object, subject, .. }) => size_of_all([operation], object, subject),
            _ => 0,
        }
    }
}

fn size_of_all<'a>(words: impl IntoIterator<Item = &'a String>, object: &'a Object, subject: &'a Subject) -> usize {
    let named = [&object.host, &object.path, &object.to, &object.text, &subject.comm, &subject.exe];
    let lists = [&subject.argv, &subject.ancestors].into_iter().flatten().flatten();
    let all = words.into_iter().chain(named.into_iter().flatten()).chain(lists);
    all.map(|text| text.len() + size_of::<String>()).sum::<usize>() + size_of_val(&object.addrs[..])
}
