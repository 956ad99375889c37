//! What every connection of the proxy shares.

use super::explain::RefusalNonce;
use super::judge::Judge;
use super::pump::Pipes;
use super::record::{self, Recorder, Unrecorded};
use super::{Limits, ProxyError};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;

/// How long refusals without a destination are collected into one record.
const FOLD: Duration = Duration::from_millis(100);

/// What every connection shares.
pub struct Core<R> {
    /// Who judges.
    pub judge: Judge,
    /// Where denials are written.
    pub recorder: R,
    /// The deadlines and caps.
    pub limits: Limits,
    /// Where bulk passes through.
    pub pipes: Rc<Pipes>,
    /// What the proxy's own refusals are known by, where they are explained.
    pub nonce: Option<RefusalNonce>,
    /// Refusals that are folded.
    pub late: Folds,
    /// Held by each open connection, and once here.
    open: Rc<()>,
    /// The first failure to record anything, and who waits for it.
    failure: RefCell<Option<Unrecorded>>,
    failed: Notify,
}

/// Refusals that stand for no destination.
#[derive(Debug, Clone, Copy)]
pub enum Late {
    /// A head did not end within its deadline.
    Head,
    /// The cap on connections was reached.
    Connection,
}

/// Exact counts of folded refusals that are not on record yet.
#[derive(Debug, Default)]
pub struct Folds {
    heads: Cell<u64>,
    connections: Cell<u64>,
    some: Notify,
}

impl Folds {
    /// Counts one.
    pub fn count(&self, what: Late) {
        let counter = match what {
            Late::Head => &self.heads,
            Late::Connection => &self.connections,
        };
        counter.set(counter.get() + 1);
        self.some.notify_one();
    }
}

impl<R: Recorder> Core<R> {
    /// Takes the parts together.
    pub fn new(judge: Judge, recorder: R, limits: Limits, nonce: Option<RefusalNonce>) -> Core<R> {
        Core {
            judge,
            recorder,
            pipes: Pipes::new(limits.pipes),
            limits,
            nonce,
            late: Folds::default(),
            open: Rc::new(()),
            failure: RefCell::new(None),
            failed: Notify::new(),
        }
    }

    /// What a connection holds while it is open.
    pub fn open(&self) -> Rc<()> {
        self.open.clone()
    }

    /// How many connections are open, the one that is about to be served among them.
    pub fn connections(&self) -> usize {
        Rc::strong_count(&self.open)
    }

    /// Tells that something could not be recorded: the proxy ends.
    pub fn fail(&self, cause: Unrecorded) {
        self.failure.borrow_mut().get_or_insert(cause);
        self.failed.notify_one();
    }

    /// Waits until something could not be recorded.
    pub async fn failed(&self) -> ProxyError {
        loop {
            self.failed.notified().await;
            if let Some(cause) = self.failure.borrow_mut().take() {
                return ProxyError::Unrecorded(cause);
            }
        }
    }

    /// Writes the folded refusals, within 100 ms of the first of each batch.
    pub async fn write_folds(&self) -> ProxyError {
        loop {
            self.late.some.notified().await;
            tokio::time::sleep(FOLD).await;
            if let Err(cause) = self.write_folded().await {
                return ProxyError::Unrecorded(cause);
            }
        }
    }

    /// Waits until the proxy is asked to end, and then until all that it has refused is on record.
    pub async fn finish(&self) -> Result<(), ProxyError> {
        self.recorder.asked_to_end().await;
        self.write_folded().await.map_err(ProxyError::Unrecorded)?;
        self.recorder.settled().await;
        Ok(())
    }

    async fn write_folded(&self) -> Result<(), Unrecorded> {
        for (counter, rule, reason) in [
            (&self.late.heads, "head-deadline", "incomplete_head"),
            (&self.late.connections, "connection-limit", "too_many_connections"),
        ] {
            let count = counter.take();
            if count > 0 {
                self.recorder.denial(record::folded(rule, reason, count), None).await?;
            }
        }
        Ok(())
    }
}
