//! The machine's own network under a root that is thrown away: for clients that reach their registries as they are set up
//! on the machine.

use crate::closed::repository;
use crate::error::Error;
use crate::image::{self, Image, Names};
use crate::namespace::Namespace;
use std::fs::File;

/// A root whose writes stay in memory, in the machine's own network namespace. What is installed in the network itself is
/// the machine's and has to be taken away by who installed it.
pub struct Machine {
    inside: Namespace,
    _layers: File,
}

impl Machine {
    /// A new root over the machine's own.
    ///
    /// # Errors
    /// Not root, or a system call that failed.
    pub fn new() -> Result<Machine, Error> {
        if !nix::unistd::geteuid().is_root() {
            return Err(Error::NotRoot);
        }
        let inside = Namespace::of_machine("machine")?;
        let repository = repository();
        let _layers = inside.run(move || image::enter(Image::Machine, &repository, Names::Machine))?;
        Ok(Machine { inside, _layers })
    }

    /// The thread that works there: the files that it names are those of the new root, and so are those of the processes
    /// that it starts.
    pub fn inside(&self) -> &Namespace {
        &self.inside
    }
}
