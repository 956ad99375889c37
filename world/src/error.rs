//! Why a world could not be built.

use std::io;

/// A failure while the world is being built; a test can only give up on it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Namespaces and mounts need root.
    #[error("the world is built from namespaces and mounts: run as root")]
    NotRoot,
    /// A system call or a file operation failed.
    #[error("{doing}: {cause}")]
    Call {
        /// The call and its object.
        doing: String,
        /// What the kernel said.
        #[source]
        cause: io::Error,
    },
    /// A system call filter could not be made or loaded.
    #[error("{doing}: {cause}")]
    Filter {
        /// What was wanted of it.
        doing: String,
        /// What the library said.
        #[source]
        cause: libseccomp::error::SeccompError,
    },
    /// A set-up program failed.
    #[error("{tool}: {said}")]
    Tool {
        /// The program and its arguments.
        tool: String,
        /// Its standard error.
        said: String,
    },
    /// An interface is there that could lead out of the world.
    #[error("the world is not closed: {namespace} has the interfaces {interfaces:?}, expected {expected:?}")]
    NotClosed {
        /// Which namespace.
        namespace: &'static str,
        /// What it has.
        interfaces: Vec<String>,
        /// What it may have.
        expected: Vec<String>,
    },
}

/// Names the call that an error came from.
pub(crate) trait Doing<T> {
    /// Says which call on what failed.
    fn doing(self, doing: impl Into<String>) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, doing: impl Into<String>) -> Result<T, Error> {
        self.map_err(|cause| Error::Call { doing: doing.into(), cause: cause.into() })
    }
}
