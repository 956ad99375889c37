//! The filter that takes system calls away (seccomp(2)).

use crate::error::Error;
use libseccomp::error::SeccompError;
use libseccomp::{ScmpAction, ScmpArch, ScmpArgCompare, ScmpCompareOp, ScmpFilterContext, ScmpSyscall};
use nix::errno::Errno;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What an argument's register must hold for a call to be refused; one condition an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The argument of this index is this value.
    Is(u32, u64),
    /// It has all of these bits.
    Has(u32, u64),
    /// Of the bits of the first number it has those of the second and no others.
    Masked(u32, u64, u64),
}

impl When {
    fn compared(self) -> ScmpArgCompare {
        match self {
            When::Is(index, value) => ScmpArgCompare::new(index, ScmpCompareOp::Equal, value),
            When::Has(index, bits) => ScmpArgCompare::new(index, ScmpCompareOp::MaskedEqual(bits), bits),
            When::Masked(index, mask, bits) => ScmpArgCompare::new(index, ScmpCompareOp::MaskedEqual(mask), bits),
        }
    }
}

/// A call that is answered without being made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub call: String,
    pub when: Vec<When>,
    pub errno: Errno,
}

/// The library keeps what it knows of the kernel, and one listener, for the whole process.
static LIBRARY: Mutex<()> = Mutex::new(());

/// Waits until no other thread uses the library.
pub(super) fn library() -> MutexGuard<'static, ()> {
    LIBRARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Loads a filter for the calling thread and for whom it starts.
pub(super) fn load(refusals: &[Refusal]) -> Result<(), Error> {
    if refusals.is_empty() {
        return Ok(());
    }
    let _one = library();
    let mut context = context()?;
    for Refusal { call, when, errno } in refusals {
        let compared: Vec<ScmpArgCompare> = when.iter().map(|when| when.compared()).collect();
        context
            .add_rule_conditional(ScmpAction::Errno(*errno as i32), number(call)?, &compared)
            .map_err(failed(format!("a seccomp rule for {call} when {when:?}")))?;
    }
    context.load().map_err(failed("load a seccomp filter"))
}

/// A filter without rules, for every entry of the machine's.
pub(super) fn context() -> Result<ScmpFilterContext, Error> {
    let mut context = ScmpFilterContext::new(ScmpAction::Allow).map_err(failed("make a seccomp filter"))?;
    if ScmpArch::native() == ScmpArch::X8664 {
        for entry in [ScmpArch::X86, ScmpArch::X32] {
            context.add_arch(entry).map_err(failed(format!("add {entry:?} to a seccomp filter")))?;
        }
    }
    context.set_ctl_nnp(false).map_err(failed("keep a seccomp filter from setting no_new_privs"))?;
    Ok(context)
}

pub(super) fn number(call: &str) -> Result<ScmpSyscall, Error> {
    ScmpSyscall::from_name(call).map_err(failed(format!("the number of {call}")))
}

pub(super) fn failed(doing: impl Into<String>) -> impl FnOnce(SeccompError) -> Error {
    let doing = doing.into();
    move |cause| Error::Filter { doing, cause }
}
