//! The queue between the loop and one sink: a ring of fixed size. Its lock is held to copy one
//! event in or out, never while a sink works.

use crate::event::Event;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Events that a queue holds, 300 KB: seconds of iterations, even of a small model.
pub const CAPACITY: usize = 2048;

/// Places that iterations leave free, so that a rare event finds one at once.
const RESERVED: usize = 64;

/// How long a rare event waits where even those are taken.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a sink gets next.
pub struct Taken {
    /// Events that were dropped just before this one.
    pub dropped: u64,
    /// None at the end, where the last events were dropped.
    pub event: Option<Event>,
}

/// A bounded queue with one reader.
pub struct Queue {
    state: Mutex<State>,
    /// An event came, or the queue was closed.
    came: Condvar,
    /// A place became free, or the reader is idle or gone.
    went: Condvar,
}

struct State {
    /// Each with the number of events that were dropped just before it.
    waiting: VecDeque<(u64, Event)>,
    /// Dropped since the newest that waits.
    dropped: u64,
    /// The queue was full and is not half empty yet.
    is_dropping: bool,
    /// The reader works on an event.
    is_busy: bool,
    /// Nothing more will come.
    is_closed: bool,
    /// The reader has ended; whatever comes is thrown away.
    is_abandoned: bool,
}

impl Queue {
    /// An empty queue with all its memory.
    pub fn new() -> Queue {
        let waiting = VecDeque::with_capacity(CAPACITY);
        let (is_dropping, is_busy, is_closed, is_abandoned) = (false, false, false, false);
        let state = State { waiting, dropped: 0, is_dropping, is_busy, is_closed, is_abandoned };
        Queue { state: Mutex::new(state), came: Condvar::new(), went: Condvar::new() }
    }

    /// Nothing that runs under the lock can panic half-way; a poisoned lock is as good as any.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event, or drops it where there is no place. Never waits, never allocates for an
    /// event that is `Copy`. `is_counted` says whether the sink is told of a drop. Once full, the
    /// queue drops until it is half empty: one large gap needs one notice, many small ones many.
    pub fn offer(&self, event: &Event, is_counted: bool) {
        let mut state = self.lock();
        let most = if state.is_dropping { CAPACITY / 2 } else { CAPACITY - RESERVED };
        state.is_dropping = state.waiting.len() >= most;
        if state.is_dropping {
            state.dropped += u64::from(is_counted);
        } else {
            self.add(state, event);
        }
    }

    /// Adds an event; waits for a place, but not forever: then it is dropped, and counted.
    pub fn send(&self, event: &Event) {
        let is_full = |state: &mut State| !state.is_abandoned && state.waiting.len() >= CAPACITY;
        let waited = self.went.wait_timeout_while(self.lock(), PATIENCE, is_full);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.waiting.len() < CAPACITY {
            self.add(state, event);
        } else {
            state.dropped += 1;
        }
    }

    fn add(&self, mut state: MutexGuard<'_, State>, event: &Event) {
        if state.is_abandoned {
            return;
        }
        let dropped = std::mem::take(&mut state.dropped);
        state.waiting.push_back((dropped, event.clone()));
        drop(state);
        self.came.notify_one();
    }

    /// The reader's side: waits for the next event. None when the queue is closed and empty.
    pub fn take(&self) -> Option<Taken> {
        let mut state = self.lock();
        state.is_busy = false;
        self.went.notify_all();
        let is_idle = |state: &mut State| state.waiting.is_empty() && !state.is_closed;
        let mut state =
            self.came.wait_while(state, is_idle).unwrap_or_else(PoisonError::into_inner);
        if let Some((dropped, event)) = state.waiting.pop_front() {
            state.is_busy = true;
            return Some(Taken { dropped, event: Some(event) });
        }
        let dropped = std::mem::take(&mut state.dropped);
        (dropped > 0).then_some(Taken { dropped, event: None })
    }

    /// Waits until the reader has dealt with everything that came so far.
    pub fn flush(&self) {
        let is_at_work =
            |state: &mut State| !state.is_abandoned && (state.is_busy || !state.waiting.is_empty());
        drop(self.went.wait_while(self.lock(), is_at_work));
    }

    /// Says that nothing more will come.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.came.notify_one();
    }

    /// Says that nobody reads any more.
    pub fn abandon(&self) {
        let mut state = self.lock();
        state.is_abandoned = true;
        state.waiting.clear();
        self.went.notify_all();
    }
}
