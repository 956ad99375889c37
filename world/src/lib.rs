//! A closed network world for tests and the demo, in which an attack that is not stopped really arrives.
//!
//! A [`World`] has a *box*, where ringfence and its command run, and an *outside* that owns every address the box can
//! reach: public, private, metadata. They are joined by a veth pair and by nothing else. In the outside stand a
//! scripted [`Resolver`], [`Origin`]s and [`Sink`]s, each of which keeps what reached it.
#![forbid(unsafe_code)]

pub mod address;
mod authority;
mod capture;
mod closed;
pub mod dns;
mod error;
pub mod hello;
mod http;
mod image;
pub mod internet;
pub mod less;
mod listening;
mod machine;
mod namespace;
mod network;
pub mod origin;
mod repository;
mod resolver;
mod seen;
mod sink;

pub use authority::Authority;
pub use capture::Packet;
pub use closed::{AUTHORITY_FILE, Said, World};
pub use dns::Record;
pub use error::Error;
pub use http::{Request, Response};
pub use image::Image;
pub use internet::Internet;
pub use less::Less;
pub use machine::Machine;
pub use namespace::Namespace;
pub use origin::Origin;
pub use repository::repository;
pub use resolver::{Answer, Question, Resolver, Transport};
pub use sink::{Arrival, Sink};
