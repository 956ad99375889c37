//! A thread that lives in its own network namespace and does what it is given there.
//!
//! The namespace has no name: it goes when the thread, the sockets made in it and the processes started in it are
//! gone, so that a test that is killed leaves nothing on the machine.

use crate::error::{Doing, Error};
use nix::sched::{CloneFlags, unshare};
use std::any::Any;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread::{self, JoinHandle, ThreadId};

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace (network_namespaces(7)) and the thread that works in it.
pub struct Namespace {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    id: ThreadId,
    file: File,
    inode: u64,
}

impl Namespace {
    /// A new network namespace with nothing but a loopback device that is down.
    ///
    /// # Errors
    /// `unshare(CLONE_NEWNET)` or a thread failed.
    pub fn new(name: &str) -> Result<Namespace, Error> {
        Namespace::start(name, || unshare(CloneFlags::CLONE_NEWNET).doing("unshare(CLONE_NEWNET)"))
    }

    /// The machine's own network namespace, with a thread for it.
    ///
    /// # Errors
    /// The thread could not be started.
    pub(crate) fn of_machine(name: &str) -> Result<Namespace, Error> {
        Namespace::start(name, || Ok(()))
    }

    fn start(name: &str, enter: impl FnOnce() -> Result<(), Error> + Send + 'static) -> Result<Namespace, Error> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (ready, made) = mpsc::channel();
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let entered = enter()
                    .and_then(|()| File::open("/proc/thread-self/ns/net").doing("open /proc/thread-self/ns/net"));
                let stays = entered.is_ok();
                if ready.send(entered).is_ok() && stays {
                    queue.into_iter().for_each(|job| job());
                }
            })
            .doing("start a thread")?;
        let file = made.recv().expect("the namespace's thread reports before it ends")?;
        let inode = file.metadata().doing("fstat of a network namespace")?.ino();
        Ok(Namespace { jobs: Some(jobs), id: thread.thread().id(), thread: Some(thread), file, inode })
    }

    /// Does `job` on the namespace's thread: sockets it makes and processes it starts belong to the namespace, and
    /// paths it names are those of the thread's root. A panic in it is the caller's.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        if thread::current().id() == self.id {
            return job();
        }
        let (answer, answered) = mpsc::channel::<Result<T, Box<dyn Any + Send>>>();
        let job: Job = Box::new(move || {
            // The caller waits for the answer, so that a send can't fail.
            answer.send(catch_unwind(AssertUnwindSafe(job))).expect("the caller waits for its answer");
        });
        self.jobs.as_ref().expect("the queue is open until drop").send(job).expect("the namespace's thread lives");
        match answered.recv().expect("a job always answers") {
            Ok(value) => value,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// The namespace as a path that another program of this machine can open while this process lives.
    pub fn path(&self) -> String {
        use std::os::fd::AsRawFd;
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// The namespace's inode number, as `/proc/PID/ns/net` shows it.
    pub fn inode(&self) -> u64 {
        self.inode
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the namespace's thread ends without a panic");
        }
    }
}
