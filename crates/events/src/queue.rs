//! The queue between the loop and one sink: a ring buffer of fixed size. Its lock is held only
//! while one event is copied in or out, never while a sink works.

use crate::event::Event;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Events that a queue holds (300 KB): seconds of training, even of a small model.
pub const CAPACITY: usize = 2048;

/// Slots that iterations leave free, so that a rare event finds one at once.
const RESERVED: usize = 64;

/// How long a rare event waits if even those are taken.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a sink gets next.
pub struct Taken {
    /// Number of events that were dropped just before this one.
    pub dropped: u64,
    /// None at the end, if the last events were dropped.
    pub event: Option<Event>,
}

/// A bounded queue with one reader.
pub struct Queue {
    state: Mutex<State>,
    /// Signalled when an event arrives or the queue is closed.
    came: Condvar,
    /// Signalled when a slot becomes free, or the reader is idle or gone.
    went: Condvar,
}

struct State {
    /// Each event with the number of events that were dropped just before it.
    waiting: VecDeque<(u64, Event)>,
    /// Number of events dropped after the newest one in the queue.
    dropped: u64,
    /// The queue was full and is not yet half empty.
    is_dropping: bool,
    /// The reader is handling an event.
    is_busy: bool,
    /// Nothing more will come.
    is_closed: bool,
    /// The reader has ended; further events are discarded.
    is_abandoned: bool,
}

impl Queue {
    /// An empty queue; all its memory is allocated now.
    pub fn new() -> Queue {
        let waiting = VecDeque::with_capacity(CAPACITY);
        let (is_dropping, is_busy, is_closed, is_abandoned) = (false, false, false, false);
        let state = State { waiting, dropped: 0, is_dropping, is_busy, is_closed, is_abandoned };
        Queue { state: Mutex::new(state), came: Condvar::new(), went: Condvar::new() }
    }

    /// Ignores poisoning: no code under the lock can panic half-way.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event, or drops it if there is no slot. Never waits, and never allocates for an
    /// event that is `Copy`. `is_counted` says whether a notice counts the drop. Once full, the
    /// queue drops events until it is half empty: one large gap needs one notice, many small ones
    /// many.
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

    /// Adds an event. Waits for a slot, but not forever: then the event is dropped and counted.
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

    /// Waits for the next event, on the reader's side. None when the queue is closed and empty.
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

    /// Waits until the reader has handled everything so far.
    pub fn flush(&self) {
        let is_at_work =
            |state: &mut State| !state.is_abandoned && (state.is_busy || !state.waiting.is_empty());
        drop(self.went.wait_while(self.lock(), is_at_work));
    }

    /// Called by the loop: no more events will come.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.came.notify_one();
    }

    /// Called when the reader ends: discards all events and wakes everyone who waits.
    pub fn abandon(&self) {
        let mut state = self.lock();
        state.is_abandoned = true;
        state.waiting.clear();
        self.went.notify_all();
    }
}
