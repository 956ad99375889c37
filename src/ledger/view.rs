//! A record as far as it is checked and counted, borrowed from its line.
//!
//! Most lines of a ledger are probes and denials in the very form in which the writer puts them: `ledger::scan` reads those
//! without making a [`Record`]. Every other line, a malformed one too, is decoded in full (`ledger::line::decode`), which
//! alone decides what a record is.

use super::line::decode;
use super::record::{Body, Denial, Evidence, Mechanism, Object, Record};
use super::scan::scan;
use crate::policy::Axis;
use std::borrow::Cow;
use std::net::IpAddr;

/// A record in its line.
#[derive(Debug, Clone, PartialEq)]
pub struct View<'a> {
    /// The line, without its newline.
    pub line: &'a [u8],
    /// As in [`Record`], and so all the others.
    pub v: u32,
    /// See [`Record::seq`].
    pub seq: u64,
    /// See [`Record::time`].
    pub time: Cow<'a, str>,
    /// See [`Record::mono_ns`].
    pub mono_ns: u64,
    /// See [`Record::run`].
    pub run: Cow<'a, str>,
    /// See [`Record::level`].
    pub level: Cow<'a, str>,
    /// What the record says.
    pub body: BodyView<'a>,
    /// See [`Record::prev`].
    pub prev: Cow<'a, str>,
}

/// What a record says.
#[derive(Debug, Clone, PartialEq)]
pub enum BodyView<'a> {
    /// A refused operation.
    Denial(DenialView<'a>),
    /// What would have been refused.
    WouldDeny(DenialView<'a>),
    /// A probe, which is well-formed; nothing of it is checked or counted.
    Probe,
    /// Any other, decoded.
    Other(Box<Body>),
}

/// A denial as far as it is counted.
#[derive(Debug, Clone, PartialEq)]
pub struct DenialView<'a> {
    /// As in [`Denial`], and so all the others.
    pub evidence: Evidence,
    /// See [`Denial::axis`].
    pub axis: Axis,
    /// See [`Denial::mechanism`].
    pub mechanism: Mechanism,
    /// See [`Denial::operation`].
    pub operation: Cow<'a, str>,
    /// See [`Denial::object`].
    pub object: ObjectView<'a>,
    /// See [`Denial::rule`].
    pub rule: Cow<'a, str>,
    /// The subject's thread name.
    pub comm: Option<Cow<'a, str>>,
    /// The subject's executable.
    pub exe: Option<Cow<'a, str>>,
    /// See [`Denial::attempt`].
    pub attempt: u64,
    /// See [`Denial::count`].
    pub count: u64,
}

/// What was tried.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObjectView<'a> {
    /// As in [`Object`], and so all the others.
    pub host: Option<Cow<'a, str>>,
    /// See [`Object::port`].
    pub port: Option<u16>,
    /// See [`Object::addrs`].
    pub addrs: Cow<'a, [IpAddr]>,
    /// See [`Object::path`].
    pub path: Option<Cow<'a, str>>,
    /// See [`Object::to`].
    pub to: Option<Cow<'a, str>>,
    /// See [`Object::text`].
    pub text: Option<Cow<'a, str>>,
}

impl<'a> View<'a> {
    /// The record in a line, which is given without its newline. Errors are those of [`decode`].
    pub fn of(line: &'a [u8]) -> Result<View<'a>, serde_json::Error> {
        match scan(line) {
            Some(view) => Ok(view),
            None => decode(line).map(|record| View::decoded(line, record)),
        }
    }

    /// The whole record. Errors are those of [`decode`]; a line that has a view has none.
    pub fn record(&self) -> Result<Record, serde_json::Error> {
        decode(self.line)
    }

    fn decoded(line: &'a [u8], record: Record) -> View<'a> {
        let body = match record.body {
            Body::Denial(denial) => BodyView::Denial(DenialView::from(&denial).into_owned()),
            Body::WouldDeny(denial) => BodyView::WouldDeny(DenialView::from(&denial).into_owned()),
            Body::Probe(_) => BodyView::Probe,
            other => BodyView::Other(Box::new(other)),
        };
        View {
            line,
            v: record.v,
            seq: record.seq,
            time: record.time.into(),
            mono_ns: record.mono_ns,
            run: record.run.into(),
            level: record.level.into(),
            body,
            prev: record.prev.into(),
        }
    }
}

fn borrowed(text: Option<&String>) -> Option<Cow<'_, str>> {
    text.map(|text| Cow::Borrowed(text.as_str()))
}

fn reborrowed(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}

fn owned<'a>(text: Option<Cow<'_, str>>) -> Option<Cow<'a, str>> {
    text.map(|text| Cow::Owned(text.into_owned()))
}

impl DenialView<'_> {
    /// Whether it was let through.
    pub fn is_let_through(&self) -> bool {
        self.evidence == Evidence::ShadowObserved
    }

    fn into_owned<'a>(self) -> DenialView<'a> {
        let ObjectView { host, port, addrs, path, to, text } = self.object;
        DenialView {
            evidence: self.evidence,
            axis: self.axis,
            mechanism: self.mechanism,
            operation: Cow::Owned(self.operation.into_owned()),
            object: ObjectView {
                host: owned(host),
                port,
                addrs: Cow::Owned(addrs.into_owned()),
                path: owned(path),
                to: owned(to),
                text: owned(text),
            },
            rule: Cow::Owned(self.rule.into_owned()),
            comm: owned(self.comm),
            exe: owned(self.exe),
            attempt: self.attempt,
            count: self.count,
        }
    }
}

impl<'a> From<&'a Denial> for DenialView<'a> {
    fn from(denial: &'a Denial) -> DenialView<'a> {
        DenialView {
            evidence: denial.evidence,
            axis: denial.axis,
            mechanism: denial.mechanism,
            operation: Cow::Borrowed(&denial.operation),
            object: ObjectView::from(&denial.object),
            rule: Cow::Borrowed(&denial.rule),
            comm: borrowed(denial.subject.comm.as_ref()),
            exe: borrowed(denial.subject.exe.as_ref()),
            attempt: denial.attempt,
            count: denial.count,
        }
    }
}

impl<'a> From<&'a DenialView<'_>> for DenialView<'a> {
    fn from(denial: &'a DenialView<'_>) -> DenialView<'a> {
        DenialView {
            operation: reborrowed(&denial.operation),
            object: ObjectView::from(&denial.object),
            rule: reborrowed(&denial.rule),
            comm: denial.comm.as_deref().map(reborrowed),
            exe: denial.exe.as_deref().map(reborrowed),
            ..*denial
        }
    }
}

impl<'a> From<&'a ObjectView<'_>> for ObjectView<'a> {
    fn from(object: &'a ObjectView<'_>) -> ObjectView<'a> {
        ObjectView {
            host: object.host.as_deref().map(reborrowed),
            port: object.port,
            addrs: Cow::Borrowed(&object.addrs),
            path: object.path.as_deref().map(reborrowed),
            to: object.to.as_deref().map(reborrowed),
            text: object.text.as_deref().map(reborrowed),
        }
    }
}

impl<'a> From<&'a Object> for ObjectView<'a> {
    fn from(object: &'a Object) -> ObjectView<'a> {
        ObjectView {
            host: borrowed(object.host.as_ref()),
            port: object.port,
            addrs: Cow::Borrowed(&object.addrs),
            path: borrowed(object.path.as_ref()),
            to: borrowed(object.to.as_ref()),
            text: borrowed(object.text.as_ref()),
        }
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
