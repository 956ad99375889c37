//! ringfence puts a graded policy in force with the kernel's own mechanisms, proves by behaviour that it holds,
//! drops privilege, runs a command under it, and writes down every denial as it is made.
//!
//! The modules stand in reading order; `run` is the story that all the others are parts of.
#![deny(unsafe_code)]

// What is asked: the command line, its subcommands, the policy.
pub mod cli;
pub mod commands;
pub mod connect;
pub mod policy;

// One run, and what can end it.
pub mod error;
pub mod run;
pub mod session;

// What the host offers, and what will carry the policy there.
pub mod host;
pub mod plan;
pub mod why;

// How it is put in force: with privilege, then in the child that gives it up.
pub mod confine;
pub mod install;
pub mod stage;

// How it is shown to hold.
pub mod mutation;
pub mod probe;

// What refuses, what sees it, and where it is written down.
pub mod ledger;
pub mod observe;
pub mod proxy;
pub mod report;

// What must not be read: tokens in it, and where they turn up; history that lies ahead of HEAD.
pub mod canary;
pub mod git;

// Living with the command to its end.
pub mod channel;
pub mod document;
pub mod supervise;

// The system calls that no crate offers safely, and nothing else that is unsafe.
pub mod procfs;
pub mod sys;
