//! The egress proxy from outside: what its clients were answered, what the origins and the resolver saw, and what
//! was recorded.

#[path = "proxy/addresses.rs"]
mod addresses;
#[path = "proxy/bulk.rs"]
mod bulk;
#[path = "proxy/cache.rs"]
mod cache;
#[path = "proxy/framing.rs"]
mod framing;
#[path = "proxy/http.rs"]
mod http;
#[path = "proxy/limits.rs"]
mod limits;
#[path = "proxy/names.rs"]
mod names;
#[path = "proxy/origin.rs"]
mod origin;
#[path = "proxy/record.rs"]
mod record;
#[path = "proxy/resolver.rs"]
mod resolver;
#[path = "proxy/rig.rs"]
mod rig;
#[path = "proxy/socks.rs"]
mod socks;
#[path = "proxy/tls.rs"]
mod tls;
#[path = "proxy/transparent.rs"]
mod transparent;
#[path = "proxy/tunnels.rs"]
mod tunnels;
