//! recvfrom(2) and recvmsg(2) on a socket whose questions were led to the resolver of ours: its client may hold the sender
//! against whom it asked, so the answer is received here and given as coming from there.

use super::Sockets;
use super::address::on;
use super::calls::write_whole;
use super::held::{Held, Led};
use super::waiting::{Later, Outcome};
use crate::observe::act::Received;
use crate::observe::caller::Unread;
use crate::observe::calls::Structures;
use crate::observe::decode::messages::{self, Fault, Layout, Rooms};
use crate::observe::judge::{Looked, Verdict};
use nix::errno::Errno;
use nix::libc;
use nix::poll::PollFlags;
use nix::sys::socket::{MsgFlags, SockaddrStorage, recvmsg};
use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

impl Looked<'_> {
    pub(super) fn receive(
        &self,
        sockets: &Arc<Sockets>,
        fd: i32,
        flags: i32,
        into: &Received,
    ) -> Result<Verdict, Unread> {
        // Most receives are none of these, and nothing is decided here that a caller which is not seen could gain by.
        let Some(held) = self.caller.socket(fd)?.and_then(|inode| sockets.table.get(inode)) else {
            return Ok(Verdict::Passes);
        };
        let Some(led) = held.led() else { return Ok(Verdict::Passes) };
        let layout = Layout::new(self.call.structures != Structures::Native);
        let rooms = self.caller.with_memory(|| Ok(messages::rooms(self.call.caller, into, layout)))?;
        let rooms = match rooms {
            Ok(rooms) => rooms,
            Err(Fault::Errno(errno)) => return Ok(Verdict::RefuseSilently(errno)),
            Err(Fault::Unread(unread)) => return Err(unread),
        };
        // Who does not ask for the sender's address sees none.
        if rooms.name == 0 || flags & libc::MSG_ERRQUEUE != 0 {
            return Ok(Verdict::Passes);
        }
        // Where its memory cannot be written to the caller sees who has answered.
        let Some(memory) = self.memory_to_write()? else { return Ok(Verdict::Passes) };
        let blocks = held.blocks() && flags & libc::MSG_DONTWAIT == 0;
        let deadline = held.receive_timeout().map(|wait| (wait, Errno::EAGAIN));
        let on = Some((held.clone(), PollFlags::POLLIN));
        let attempt = move || match taken(&held, led, flags, &rooms, &memory) {
            Ok(length) => Outcome::Done(length as i64),
            Err(Errno::EAGAIN) if blocks => Outcome::Blocked,
            Err(errno) => Outcome::Failed(errno),
        };
        Ok(self.later(Later { on, deadline, interruptible: true, ..Later::once(self.caller.tid, attempt) }))
    }
}

/// Takes a datagram and lays it down where the caller wants it.
fn taken(held: &Held, led: Led, flags: i32, rooms: &Rooms, memory: &OwnedFd) -> Result<usize, Errno> {
    let mut data = vec![0; rooms.parts.iter().map(|(_, length)| length).sum()];
    let flags = MsgFlags::from_bits_retain(flags) | MsgFlags::MSG_DONTWAIT;
    let (length, told, from) = held.with(|file| {
        let mut parts = [IoSliceMut::new(&mut data)];
        let received = recvmsg::<SockaddrStorage>(file.as_raw_fd(), &mut parts, None, flags)?;
        Ok((received.bytes, received.flags, received.address.and_then(|address| plain(&address))))
    })?;
    let write = |at: u64, bytes: &[u8]| write_whole(memory, at, bytes);
    let mut rest = &data[..length.min(data.len())];
    for (base, room) in &rooms.parts {
        let (here, left) = rest.split_at((*room).min(rest.len()));
        if !here.is_empty() {
            write(*base, here)?;
        }
        rest = left;
    }
    let name = from.map(|from| on(held.kind, if from == led.to { led.asked } else { from }));
    let name = name.unwrap_or_default();
    let shown = &name[..name.len().min(rooms.name_room)];
    if !shown.is_empty() {
        write(rooms.name, shown)?;
    }
    write(rooms.name_length, &(name.len() as u32).to_ne_bytes())?;
    if let Some((size, width)) = rooms.control_size {
        write(size, &vec![0; width])?;
    }
    if let Some(at) = rooms.flags {
        write(at, &told.bits().to_ne_bytes())?;
    }
    Ok(length)
}

fn plain(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::new(v4.ip().into(), v4.port()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::new(IpAddr::V6(v6.ip()).to_canonical(), v6.port())))
}
