//! A resolver whose every answer is scripted, by name, type and how often it was asked.

use crate::dns::{self, A, AAAA, Asked, Record};
use crate::error::Error;
use crate::listening::{Tcp, Udp};
use crate::namespace::Namespace;
use crate::seen::Seen;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The lifetime of records for which a script gives none, in seconds: nobody may keep them, so that the next question is the
/// script's next.
const DEFAULT_TTL: u32 = 0;
/// How many aliases are followed for one question.
const MAX_ALIASES: usize = 16;

/// What is answered to one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// These addresses, of whatever family; with a lifetime in seconds.
    Addresses(Vec<IpAddr>, u32),
    /// An alias, and the scripted answer of its target with it.
    Alias(String),
    /// The name does not exist (NXDOMAIN).
    NoSuchName,
    /// The resolver failed (SERVFAIL).
    ServerFailure,
    /// The name exists and has no record of this type.
    Empty,
    /// Nothing is sent.
    Silent,
    /// Over UDP: that the answer didn't fit; over TCP: these addresses.
    OverTcp(Vec<IpAddr>),
    /// These records as they are, whatever was asked.
    Records(Vec<Record>),
}

/// How a question came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// In a datagram.
    Udp,
    /// On a connection.
    Tcp,
}

/// A question that was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The name in lower case, without the last dot; odd bytes as `\DDD`.
    pub name: String,
    /// The record type's number, as in [`dns::A`].
    pub kind: u16,
    /// How it came.
    pub transport: Transport,
    /// Who asked.
    pub source: SocketAddr,
}

#[derive(Default)]
struct Script {
    answers: HashMap<(String, u16), Vec<Answer>>,
    asked: HashMap<(String, u16), usize>,
}

/// A DNS server (UDP and TCP) with a script. A name that is in no script does not exist.
pub struct Resolver {
    script: Arc<Mutex<Script>>,
    seen: Arc<Seen<Question>>,
    _sockets: (Udp, Tcp),
}

impl Resolver {
    /// Serves on port 53 of an address of the namespace.
    ///
    /// # Errors
    /// The address can't be bound.
    pub fn start(space: &Namespace, address: impl Into<IpAddr>) -> Result<Resolver, Error> {
        let address = SocketAddr::new(address.into(), 53);
        let (script, seen) = (Arc::new(Mutex::new(Script::default())), Arc::new(Seen::new()));
        let udp = Udp::listen(space, address, {
            let (script, seen) = (script.clone(), seen.clone());
            move |message, peer| reply(&script, &seen, message, Transport::Udp, peer)
        })?;
        let tcp = Tcp::listen(space, address, {
            let (script, seen) = (script.clone(), seen.clone());
            move |mut stream| {
                let Ok(peer) = stream.peer_addr() else { return };
                let mut length = [0; 2];
                while stream.read_exact(&mut length).is_ok() {
                    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
                    if stream.read_exact(&mut message).is_err() {
                        return;
                    }
                    let Some(answer) = reply(&script, &seen, &message, Transport::Tcp, peer) else {
                        return;
                    };
                    let framed = [&(answer.len() as u16).to_be_bytes()[..], &answer].concat();
                    if stream.write_all(&framed).is_err() {
                        return;
                    }
                }
            }
        })?;
        Ok(Resolver { script, seen, _sockets: (udp, tcp) })
    }

    /// Scripts the answers to a name and type, in the order in which it is asked; the last one stays.
    pub fn answers(&self, name: &str, kind: u16, answers: impl IntoIterator<Item = Answer>) {
        let answers: Vec<Answer> = answers.into_iter().collect();
        assert!(!answers.is_empty(), "a script for {name} needs an answer");
        let mut script = self.script.lock().expect("no panic while held");
        script.answers.insert((name.to_ascii_lowercase(), kind), answers);
    }

    /// A name with these addresses: the IPv4 ones for A, the IPv6 ones for AAAA.
    pub fn host(&self, name: &str, addresses: &[IpAddr]) {
        for (kind, is_kind) in [(A, IpAddr::is_ipv4 as fn(&IpAddr) -> bool), (AAAA, IpAddr::is_ipv6)] {
            let of_kind: Vec<IpAddr> = addresses.iter().copied().filter(is_kind).collect();
            let answer = if of_kind.is_empty() { Answer::Empty } else { Answer::Addresses(of_kind, DEFAULT_TTL) };
            self.answers(name, kind, [answer]);
        }
    }

    /// A name that is another's alias, for both families.
    pub fn alias(&self, name: &str, target: &str) {
        for kind in [A, AAAA] {
            self.answers(name, kind, [Answer::Alias(target.to_owned())]);
        }
    }

    /// Every question so far.
    pub fn questions(&self) -> Vec<Question> {
        self.seen.all()
    }

    /// The questions so far about one name.
    pub fn questions_about(&self, name: &str) -> Vec<Question> {
        self.questions().into_iter().filter(|question| question.name == name).collect()
    }

    /// Waits until the questions so far are `enough`, at most ten seconds; the answer is those that there are then.
    pub fn wait_until(&self, enough: impl Fn(&[Question]) -> bool) -> Vec<Question> {
        self.seen.wait_until(Duration::from_secs(10), enough)
    }
}

fn reply(
    script: &Mutex<Script>,
    seen: &Seen<Question>,
    message: &[u8],
    transport: Transport,
    source: SocketAddr,
) -> Option<Vec<u8>> {
    let asked = dns::read_question(message)?;
    seen.push(Question { name: asked.name.clone(), kind: asked.kind, transport, source });
    let mut script = script.lock().expect("no panic while held");
    answer(&mut script, message, &asked, transport)
}

fn answer(script: &mut Script, message: &[u8], asked: &Asked, transport: Transport) -> Option<Vec<u8>> {
    let (mut name, mut records) = (asked.name.clone(), Vec::new());
    for _ in 0..MAX_ALIASES {
        let addresses = |found: Vec<IpAddr>| found.into_iter().map(|one| Record::Address(name.clone(), one));
        let (code, ttl) = match script.next(&name, asked.kind) {
            Answer::Alias(target) => {
                records.push(Record::Alias(name, target.clone()));
                name = target;
                continue;
            }
            Answer::Addresses(found, ttl) => {
                records.extend(addresses(found));
                (dns::NO_ERROR, ttl)
            }
            Answer::OverTcp(_) if transport == Transport::Udp => {
                return Some(dns::write_truncated(message, asked));
            }
            Answer::OverTcp(found) => {
                records.extend(addresses(found));
                (dns::NO_ERROR, DEFAULT_TTL)
            }
            Answer::Records(found) => {
                records.extend(found);
                (dns::NO_ERROR, DEFAULT_TTL)
            }
            Answer::NoSuchName => (dns::NO_SUCH_NAME, DEFAULT_TTL),
            Answer::ServerFailure => (dns::SERVER_FAILURE, 0),
            Answer::Empty => (dns::NO_ERROR, DEFAULT_TTL),
            Answer::Silent => return None,
        };
        let answer = dns::write_answer(message, asked, code, ttl, &records);
        let fits = transport == Transport::Tcp || answer.len() <= dns::DATAGRAM;
        return Some(if fits { answer } else { dns::write_truncated(message, asked) });
    }
    Some(dns::write_answer(message, asked, dns::SERVER_FAILURE, 0, &[]))
}

impl Script {
    /// The answer that is next for a name and type. A name with a script for another type exists, and is empty.
    fn next(&mut self, name: &str, kind: u16) -> Answer {
        let key = (name.to_owned(), kind);
        let Some(answers) = self.answers.get(&key) else {
            let exists = self.answers.keys().any(|(other, _)| other == name);
            return if exists { Answer::Empty } else { Answer::NoSuchName };
        };
        let asked = self.asked.entry(key).or_default();
        let answer = answers[(*asked).min(answers.len() - 1)].clone();
        *asked += 1;
        answer
    }
}
