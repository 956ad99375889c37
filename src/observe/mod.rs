//! What sees denials: the firewall's log, the proxy's reports, and the observer, which answers the seccomp listener.

// What the observer looks at, and how it reads it.
pub mod act;
pub mod caller;
pub mod calls;
pub mod decode;
mod describe;
mod threads;
pub mod watched;

// How it judges.
mod ask;
mod judge;
mod predict;
mod shadow;
mod socketcall;
mod walk;

// Where there is no firewall: sockets that are made and connected for the command.
pub mod sockets;

// Who made it.
pub mod attribution;
pub mod connectors;
pub mod socket_owner;
pub mod subject;

// The process, and what the supervisor makes of what it tells.
mod control;
pub mod evidence;
pub mod fanotify;
mod hearing;
pub mod landlock_audit;
pub mod nflog;
pub mod process;
pub mod told;
