//! Calls that 32-bit programs make by socketcall(2), where the filter would look at the arguments of the call proper. They
//! are behind a pointer and the caller's to change at any moment, so a call whose verdict depends on them never goes on: it
//! is made here on a copy of them, by a process that can do nothing which the command could not.

use super::act::Act;
use super::caller::Unread;
use super::calls::{Found, InNative, NATIVE, Structures};
use super::decode::{self, Call, Decoded, again};
use super::describe;
use super::judge::{Looked, Verdict};
use super::threads;
use super::watched::Reading;
use crate::policy::Axis;
use crate::sys::call::{Argument, call, call_for_fd};
use crate::sys::notify::{CallData, duplicate_of};
use nix::errno::Errno;
use nix::libc;
use std::os::fd::{AsFd, BorrowedFd};

/// SYS_SOCKET, SYS_SOCKETPAIR and SYS_SETSOCKOPT of socketcall(2) (linux/net.h): the filter looks at their arguments.
pub const DECIDING: [u64; 3] = [1, 8, 14];
/// SYS_BIND, SYS_CONNECT and SYS_SENDTO.
pub const LOOKING: [u64; 3] = [2, 3, 11];
/// SYS_LISTEN, SYS_SENDMSG and SYS_SENDMMSG, which matter where sockets are made for their caller.
pub const MAKING: [u64; 3] = [4, 16, 20];

/// socketcall(2): the number of a call on a socket, and its arguments in words behind a pointer.
pub fn read(call: &Call<'_>) -> Decoded {
    let (number, count) = match call.arguments[0] as u32 {
        1 => (libc::SYS_socket, 3),
        2 => (libc::SYS_bind, 3),
        3 => (libc::SYS_connect, 3),
        4 => (libc::SYS_listen, 2),
        8 => (libc::SYS_socketpair, 4),
        11 => (libc::SYS_sendto, 6),
        14 => (libc::SYS_setsockopt, 5),
        16 => (libc::SYS_sendmsg, 3),
        20 => (libc::SYS_sendmmsg, 4),
        _ => return Ok(Act::Plain),
    };
    let words = call.caller.bytes(call.arguments[1], count * 4)?;
    let mut arguments = [0; 6];
    for (argument, word) in arguments.iter_mut().zip(words.as_chunks().0) {
        *argument = u64::from(u32::from_ne_bytes(*word));
    }
    let value = match (number, arguments[4] as i32) {
        (libc::SYS_setsockopt, length @ 1..) => {
            call.caller.bytes(arguments[3], (length as usize).min(decode::AGAIN_MAX))?
        }
        _ => Vec::new(),
    };
    Ok(Act::Socket { number, arguments, value })
}

/// The verdict on a call proper.
pub fn verdict(
    looked: &Looked<'_>,
    number: libc::c_long,
    arguments: [u64; 6],
    value: &[u8],
) -> Result<Verdict, Unread> {
    let judge = looked.judge;
    let proper = CallData { number: number as i32, arch: NATIVE, instruction: 0, arguments };
    match judge.calls.find(&proper) {
        Found::Refused(rule) => return Ok(judge.refused_by(rule, &arguments, looked.caller.tid)),
        Found::Watched(watched, native) => {
            // What its pointers point to is a 32-bit program's.
            let native = InNative { structures: Structures::Narrow, ..native };
            let inner = Looked::new(judge, looked.caller, watched, native);
            let act = match watched.reading {
                Reading::Again(shape) => again(&inner.call, shape)?,
                Reading::Act(reading) => looked.caller.with_memory(|| reading(&inner.call))?,
            };
            let verdict = inner.verdict(act)?;
            match verdict {
                // The socket is named behind a pointer as well, and could be another one by then.
                Verdict::GoOn | Verdict::Passes => {}
                verdict => return Ok(verdict),
            }
        }
        Found::Abi | Found::Nothing => {}
    }
    if !looked.watched.decides {
        return Ok(Verdict::GoOn);
    }
    let refused = |call: &str| {
        let object = describe::registers(call, &arguments);
        judge.refused_as_abi(Axis::Network, call, Errno::EPERM, &object, looked.caller.tid)
    };
    Ok(match number {
        libc::SYS_socket => socket(&arguments),
        libc::SYS_setsockopt => set_option(looked, &arguments, value)?.unwrap_or_else(|| refused("setsockopt")),
        // Its two descriptors go into the caller's memory.
        libc::SYS_socketpair => refused("socketpair"),
        _ => refused(inner_name(number)),
    })
}

fn inner_name(number: libc::c_long) -> &'static str {
    match number {
        libc::SYS_bind => "bind",
        libc::SYS_connect => "connect",
        libc::SYS_listen => "listen",
        libc::SYS_sendto => "sendto",
        libc::SYS_sendmsg => "sendmsg",
        _ => "sendmmsg",
    }
}

/// Opens a socket, which has the command's ids as its opener's, by which the firewall tells it.
fn socket(arguments: &[u64; 6]) -> Verdict {
    let [family, kind, protocol, ..] = *arguments;
    let close_on_exec = libc::SOCK_CLOEXEC as u64;
    let numbers = [family, kind | close_on_exec, protocol].map(Argument::Number);
    match call_for_fd(libc::SYS_socket, numbers) {
        Ok(socket) => Verdict::Opened(socket, kind & close_on_exec != 0),
        Err(errno) => Verdict::RefuseSilently(errno),
    }
}

/// Sets an option on a duplicate of the caller's socket; `None` for one that cannot be set from here.
fn set_option(looked: &Looked<'_>, arguments: &[u64; 6], value: &[u8]) -> Result<Option<Verdict>, Unread> {
    let [socket, level, option, _, length] = [0, 1, 2, 3, 4].map(|at| arguments[at] as i32);
    let whole = length <= 0 || value.len() == length as usize;
    let Some(mut value) = native_value(level, option, value).filter(|_| whole) else { return Ok(None) };
    // A length that is none is for the kernel to refuse.
    let length = if length < 0 { u64::from(length as u32) } else { value.len() as u64 };
    let mut set = |socket: BorrowedFd<'_>| {
        let [level, option, length] = [level as u64, option as u64, length].map(Argument::Number);
        match call(libc::SYS_setsockopt, [Argument::Fd(socket), level, option, Argument::Memory(&mut value), length]) {
            Ok(done) => Verdict::Done(done),
            Err(errno) => Verdict::RefuseSilently(errno),
        }
    };
    if let Some(held) = looked.held_socket(socket)? {
        return Ok(Some(match &*held.file() {
            Some(file) => set(file.as_fd()),
            None => Verdict::RefuseSilently(Errno::EBADF),
        }));
    }
    let process = threads::process_of(looked.caller.tid).ok_or(Unread::Gone)?;
    let socket = match looked.caller.with_memory(|| Ok(duplicate_of(looked.caller.tid, process, socket)))? {
        Ok(socket) => socket,
        Err(Errno::EBADF) => return Ok(Some(Verdict::RefuseSilently(Errno::EBADF))),
        // Without SYS_PTRACE the descriptors of others are not to be had.
        Err(_) => return Ok(None),
    };
    Ok(Some(set(socket.as_fd())))
}

/// The value in the form that the native call takes; `None` where it names a descriptor or memory of the caller's, has a
/// form of its own for 32-bit programs, or is of a level that is not known here.
fn native_value(level: i32, option: i32, value: &[u8]) -> Option<Vec<u8>> {
    // asm-generic/socket.h, linux/in.h, linux/in6.h.
    const NEWEST: i32 = 84;
    const ATTACH_BPF: [i32; 3] = [50, 51, 52];
    const GROUPS: std::ops::RangeInclusive<i32> = 42..=48;
    const FLOW_LABEL: i32 = 32;
    const PACKET_OPTIONS: i32 = 6;
    match (level, option) {
        (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER) => None,
        (libc::SOL_SOCKET, option) if ATTACH_BPF.contains(&option) || option > NEWEST => None,
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) => match value.as_chunks::<4>().0 {
            [seconds, fraction, ..] => {
                let wide = [seconds, fraction].map(|word| i64::from(i32::from_ne_bytes(*word)).to_ne_bytes());
                Some(wide.concat())
            }
            // Too short for the kernel as well.
            _ => Some(value.to_vec()),
        },
        (libc::IPPROTO_IP | libc::IPPROTO_IPV6, option) if GROUPS.contains(&option) => None,
        (libc::IPPROTO_IPV6, FLOW_LABEL | PACKET_OPTIONS) => None,
        (
            libc::SOL_SOCKET
            | libc::IPPROTO_IP
            | libc::IPPROTO_IPV6
            | libc::IPPROTO_TCP
            | libc::IPPROTO_UDP
            | libc::SOL_NETLINK,
            _,
        ) => Some(value.to_vec()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_passed_on_where_it_means_the_same_here() {
        let one = 1i32.to_ne_bytes();
        for (level, option) in [
            (libc::SOL_SOCKET, libc::SO_REUSEADDR),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY),
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
        ] {
            assert_eq!(native_value(level, option, &one), Some(one.to_vec()));
        }
        for (level, option) in [
            (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER),
            (libc::SOL_SOCKET, libc::SO_ATTACH_BPF),
            (libc::SOL_SOCKET, 85),
            (libc::IPPROTO_IP, libc::MCAST_JOIN_GROUP),
            (libc::IPPROTO_IPV6, libc::MCAST_JOIN_GROUP),
            (libc::SOL_ALG, 1),
        ] {
            assert_eq!(native_value(level, option, &one), None, "{level} {option}");
        }
        let narrow = [3i32, -1].map(i32::to_ne_bytes).concat();
        let wide = [3i64, -1].map(i64::to_ne_bytes).concat();
        assert_eq!(native_value(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &narrow), Some(wide));
        assert_eq!(native_value(libc::SOL_SOCKET, libc::SO_SNDTIMEO, &one), Some(one.to_vec()));
    }
}
