//! A resolver that answers by a script and logs every question, over UDP and TCP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};

/// Owner, type (`A`, `AAAA`, `CNAME`) and data in presentation form. Without an owner it is the name asked for.
pub type Record = (&'static str, &'static str, String);

/// What the resolver answers.
#[derive(Clone)]
pub enum Answer {
    /// Records that may not be kept.
    Records(Vec<Record>),
    /// Records, each with its TTL in seconds.
    Lasting(Vec<(u32, Record)>),
    /// Only a response code.
    Code(u8),
    /// Nothing ever.
    Silence,
}

/// No record and no error.
pub fn empty() -> Answer {
    Answer::Records(Vec::new())
}

/// Records of the name asked for, those of the question's type alone.
pub fn addrs(addrs: &[&str]) -> Answer {
    Answer::Records(addrs.iter().map(address).collect())
}

/// The same, with one TTL.
pub fn lasting(ttl: u32, addrs: &[&str]) -> Answer {
    Answer::Lasting(addrs.iter().map(|addr| (ttl, address(addr))).collect())
}

fn address(addr: &&str) -> Record {
    let kind = if addr.contains(':') { "AAAA" } else { "A" };
    ("", kind, (*addr).to_owned())
}

/// A question as the resolver saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The transaction: retransmissions share it.
    pub id: u16,
    /// The name, without the last dot.
    pub name: String,
    /// `A` or `AAAA`, else the number.
    pub kind: String,
}

type Script = dyn Fn(&str, &str, usize) -> Answer + Send + Sync;

/// A resolver that answers by a script: name, type, and how often this question came before.
#[derive(Clone)]
pub struct Resolver {
    pub addr: SocketAddr,
    log: Arc<Mutex<Vec<Question>>>,
}

impl Resolver {
    pub fn start(script: impl Fn(&str, &str, usize) -> Answer + Send + Sync + 'static) -> Resolver {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = tcp.local_addr().unwrap();
        let udp = UdpSocket::bind(addr).unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let script: Arc<Script> = Arc::new(script);
        let (log_udp, script_udp) = (log.clone(), script.clone());
        std::thread::spawn(move || {
            let mut packet = [0; 2048];
            while let Ok((length, from)) = udp.recv_from(&mut packet) {
                if let Some(mut answer) = respond(&packet[..length], &log_udp, &*script_udp) {
                    if answer.len() > 1232 {
                        // TC, and no records: the question comes again by TCP.
                        answer.truncate(12);
                        answer[2] |= 2;
                        answer[6..12].fill(0);
                        answer.extend_from_slice(&packet[12..question_end(&packet)]);
                    }
                    udp.send_to(&answer, from).unwrap();
                }
            }
        });
        let log_tcp = log.clone();
        std::thread::spawn(move || {
            for stream in tcp.incoming() {
                let (log, script) = (log_tcp.clone(), script.clone());
                std::thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    let mut length = [0; 2];
                    while stream.read_exact(&mut length).is_ok() {
                        let mut packet = vec![0; u16::from_be_bytes(length).into()];
                        stream.read_exact(&mut packet).unwrap();
                        if let Some(answer) = respond(&packet, &log, &*script) {
                            let length = u16::try_from(answer.len()).unwrap();
                            stream.write_all(&length.to_be_bytes()).unwrap();
                            stream.write_all(&answer).unwrap();
                        }
                    }
                });
            }
        });
        Resolver { addr, log }
    }

    /// Every question so far, retransmissions left out.
    pub fn questions(&self) -> Vec<(String, String)> {
        let mut seen = Vec::new();
        for question in self.log.lock().unwrap().iter() {
            if !seen.contains(question) {
                seen.push(question.clone());
            }
        }
        seen.into_iter().map(|q| (q.name, q.kind)).collect()
    }

    /// The names asked for, each once, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.questions().into_iter().map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        names
    }
}

fn question_end(packet: &[u8]) -> usize {
    let mut at = 12;
    while packet[at] != 0 {
        at += usize::from(packet[at]) + 1;
    }
    at + 5
}

fn respond(packet: &[u8], log: &Mutex<Vec<Question>>, script: &Script) -> Option<Vec<u8>> {
    let mut labels = Vec::new();
    let mut at = 12;
    while packet[at] != 0 {
        let end = at + 1 + usize::from(packet[at]);
        labels.push(String::from_utf8_lossy(&packet[at + 1..end]).into_owned());
        at = end;
    }
    let kind = match u16::from_be_bytes([packet[at + 1], packet[at + 2]]) {
        1 => "A".to_owned(),
        28 => "AAAA".to_owned(),
        other => other.to_string(),
    };
    let question = Question { id: u16::from_be_bytes([packet[0], packet[1]]), name: labels.join("."), kind };
    let before = {
        let mut log = log.lock().unwrap();
        let same = |q: &&Question| q.name == question.name && q.kind == question.kind;
        let mut ids: Vec<u16> = log.iter().filter(same).map(|q| q.id).collect();
        ids.retain(|id| *id != question.id);
        ids.sort_unstable();
        ids.dedup();
        log.push(question.clone());
        ids.len()
    };
    let (code, records) = match script(&question.name, &question.kind, before) {
        Answer::Silence => return None,
        Answer::Code(code) => (code, Vec::new()),
        Answer::Records(records) => (0, records.into_iter().map(|record| (0, record)).collect()),
        Answer::Lasting(records) => (0, records),
    };
    let mut answer = packet[..2].to_vec();
    answer.extend_from_slice(&[0x81, 0x80 | code, 0, 1, 0, 0, 0, 0, 0, 0]);
    answer.extend_from_slice(&packet[12..at + 5]);
    let mut count: u16 = 0;
    for (ttl, (owner, kind, data)) in records {
        // As a resolver does: the chain goes with either type, addresses with their own.
        if kind != "CNAME" && kind != question.kind {
            continue;
        }
        count += 1;
        match owner {
            "" => answer.extend_from_slice(&[0xc0, 12]),
            owner => wire_name(&mut answer, owner),
        }
        let (number, data): (u16, Vec<u8>) = match kind {
            "A" => (1, data.parse::<std::net::Ipv4Addr>().unwrap().octets().to_vec()),
            "AAAA" => (28, data.parse::<std::net::Ipv6Addr>().unwrap().octets().to_vec()),
            _ => {
                let mut name = Vec::new();
                wire_name(&mut name, &data);
                (5, name)
            }
        };
        answer.extend_from_slice(&number.to_be_bytes());
        answer.extend_from_slice(&[0, 1]);
        answer.extend_from_slice(&ttl.to_be_bytes());
        answer.extend_from_slice(&u16::try_from(data.len()).unwrap().to_be_bytes());
        answer.extend_from_slice(&data);
    }
    answer[6..8].copy_from_slice(&count.to_be_bytes());
    Some(answer)
}

fn wire_name(out: &mut Vec<u8>, name: &str) {
    for label in name.split('.') {
        out.push(u8::try_from(label.len()).unwrap());
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
}
