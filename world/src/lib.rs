//! A closed network world for tests and the demo, in which an attack that is not stopped really arrives.
//!
//! A [`World`] has a *box*, where ringfence and its command run, and an *outside* that owns every address the box can
//! reach: public, private, metadata. They are joined by a veth pair and by nothing else. In the outside stand a
//! scripted [`Resolver`], [`Origin`]s and sinks, each of which keeps what reached it.
#![forbid(unsafe_code)]

pub mod address;
mod capture;
mod closed;
mod error;
mod image;
mod namespace;
mod network;

pub use capture::Packet;
pub use closed::{AUTHORITY_FILE, Said, World};
pub use error::Error;
pub use image::Image;
pub use namespace::Namespace;
