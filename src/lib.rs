//! ringfence puts a graded policy in force with the kernel's own mechanisms, proves by behaviour that it holds,
//! drops privilege, runs a command under it, and writes down every denial as it is made.
//!
//! The modules in reading order: what is asked, what the host offers, what will carry it, how it is put in force,
//! how it is shown to hold, and how one run is lived to its end.
#![deny(unsafe_code)]

pub mod channel;
pub mod cli;
pub mod confine;
pub mod error;
pub mod install;
pub mod ledger;
pub mod mutation;
pub mod host;
pub mod plan;
pub mod run;
pub mod commands;
pub mod observe;
pub mod policy;
pub mod probe;
pub mod proxy;
pub mod report;
pub mod stage;
pub mod supervise;
pub mod sys;
