//! The queue between the loop and one sink: a ring buffer of fixed size. Its lock is held only
//! while one event is copied in or out, never while a sink works.

use crate::event::Event;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Events that a queue holds (300 KB): seconds of training, even of a small model.
pub const CAPACITY: usize = 2048;

/// Slots that iterations leave free, so that a rare event finds one at once.
const RESERVED: usize = 64;

/// Most events that wait when an unlogged event is added: a sink that is behind needs none of them.
const UNLOGGED: usize = 64;

/// How long a rare event waits if even the reserved slots are taken, and how long the end of a run
/// waits for a sink that takes nothing.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How often a flush checks whether it should hurry.
const POLL: Duration = Duration::from_millis(50);

/// What a sink gets next.
pub enum Taken {
    /// An event.
    Event {
        /// The events that were dropped just before this one.
        dropped: Dropped,
        /// None at the end, if the last events were dropped.
        event: Option<Event>,
    },
    /// It must write what it has collected: somebody waits for that.
    Settle,
}

/// Numbers of dropped events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Logged iterations.
    pub iterations: u64,
    /// Everything else: evaluations, saves, notices.
    pub others: u64,
}

/// A bounded queue with one reader.
pub struct Queue {
    state: Mutex<State>,
    /// Signalled when an event arrives or the queue is closed.
    came: Condvar,
    /// Signalled when a slot becomes free, or the reader is idle or gone.
    went: Condvar,
    patience: Duration,
}

struct State {
    /// Each event with the events that were dropped just before it.
    waiting: VecDeque<(Dropped, Event)>,
    /// Events dropped after the newest one in the queue.
    dropped: Dropped,
    /// `Time::seconds` of the newest event in the queue.
    newest: f64,
    /// How often the reader has taken something.
    taken: u64,
    /// Events that it has taken.
    events_taken: u64,
    /// It must settle once it has taken so many events.
    settle_at: u64,
    /// It has settled after so many events.
    settled_at: u64,
    /// It is settling, after so many events.
    settling: Option<u64>,
    /// The queue was full and is not yet half empty.
    is_dropping: bool,
    /// A wait for the reader timed out. Nothing waits again until it takes an event.
    is_stuck: bool,
    /// The reader is handling an event.
    is_busy: bool,
    /// Nothing more will come.
    is_closed: bool,
    /// The reader has ended; further events are discarded.
    is_abandoned: bool,
}

impl State {
    /// Whether all events are handled after which the reader must settle.
    fn must_settle(&self) -> bool {
        self.settle_at > self.settled_at && self.events_taken >= self.settle_at
    }
}

impl Queue {
    /// An empty queue; all its memory is allocated now.
    pub fn new(patience: Duration) -> Queue {
        let state = State {
            waiting: VecDeque::with_capacity(CAPACITY),
            dropped: Dropped::default(),
            newest: 0.0,
            taken: 0,
            events_taken: 0,
            settle_at: 0,
            settled_at: 0,
            settling: None,
            is_dropping: false,
            is_stuck: false,
            is_busy: false,
            is_closed: false,
            is_abandoned: false,
        };
        Queue { state: Mutex::new(state), came: Condvar::new(), went: Condvar::new(), patience }
    }

    /// Ignores poisoning: no code under the lock can panic half-way.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a logged iteration, or drops and counts it if there is no slot. Never waits, never
    /// allocates. Once full, the queue drops iterations until it is half empty: one large gap needs
    /// one notice, many small ones many.
    pub fn offer(&self, event: &Event) {
        let mut state = self.lock();
        let most = if state.is_dropping { CAPACITY / 2 } else { CAPACITY - RESERVED };
        state.is_dropping = state.waiting.len() >= most;
        if state.is_dropping {
            state.dropped.iterations += 1;
        } else {
            self.add(state, event);
        }
    }

    /// Adds an event that neither the log nor a console line shows, unless others wait: it must not
    /// take the slot of one that is shown. Never waits, never allocates; a drop is not counted.
    pub fn offer_unlogged(&self, event: &Event) {
        let state = self.lock();
        if state.waiting.len() < UNLOGGED {
            self.add(state, event);
        }
    }

    /// Adds a rare event. Waits for a slot, but not forever: then the event is dropped and counted.
    /// While the reader is stuck, only the first such event waits.
    pub fn send(&self, event: &Event) {
        let is_full = |state: &mut State| {
            !state.is_abandoned && !state.is_stuck && state.waiting.len() >= CAPACITY
        };
        let waited = self.went.wait_timeout_while(self.lock(), self.patience, is_full);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.waiting.len() < CAPACITY {
            self.add(state, event);
        } else {
            state.is_stuck = true;
            state.dropped.others += 1;
        }
    }

    /// Adds an event. Sinks stamp notices on their own threads: an event that comes late gets the
    /// time of the one before it, so that times never go back.
    fn add(&self, mut state: MutexGuard<'_, State>, event: &Event) {
        if state.is_abandoned {
            return;
        }
        let mut event = event.clone();
        state.newest = state.newest.max(event.time.seconds);
        event.time.seconds = state.newest;
        let dropped = std::mem::take(&mut state.dropped);
        state.waiting.push_back((dropped, event));
        drop(state);
        self.came.notify_one();
    }

    /// Waits for the next event, on the reader's side. None when the queue is closed and empty.
    pub fn take(&self) -> Option<Taken> {
        let mut state = self.lock();
        state.is_busy = false;
        if let Some(events) = state.settling.take() {
            state.settled_at = events;
        }
        self.went.notify_all();
        let is_idle = |state: &mut State| {
            state.waiting.is_empty() && !state.is_closed && !state.must_settle()
        };
        let mut state =
            self.came.wait_while(state, is_idle).unwrap_or_else(PoisonError::into_inner);
        state.taken += 1;
        state.is_stuck = false;
        if state.must_settle() {
            state.settling = Some(state.settle_at);
            state.is_busy = true;
            return Some(Taken::Settle);
        }
        if let Some((dropped, event)) = state.waiting.pop_front() {
            state.events_taken += 1;
            state.is_busy = true;
            return Some(Taken::Event { dropped, event: Some(event) });
        }
        let dropped = std::mem::take(&mut state.dropped);
        (dropped != Dropped::default()).then_some(Taken::Event { dropped, event: None })
    }

    /// Asks the reader to settle when it has handled all events so far. Returns what
    /// [`Queue::wait_settled`] needs.
    pub fn ask_to_settle(&self) -> u64 {
        let mut state = self.lock();
        state.settle_at = state.events_taken + state.waiting.len() as u64;
        let events = state.settle_at;
        drop(state);
        self.came.notify_one();
        events
    }

    /// Waits until the reader has settled after so many events. Gives up on a reader that takes
    /// nothing, and returns false.
    pub fn wait_settled(&self, events: u64) -> bool {
        self.wait_until(|state| state.settled_at >= events, &|| true)
    }

    /// Waits until the reader has handled everything so far. While `is_hurried` says so, it gives
    /// up on a reader that takes nothing, and returns false.
    pub fn flush(&self, is_hurried: &dyn Fn() -> bool) -> bool {
        let is_over = |state: &State| !state.is_busy && state.waiting.is_empty();
        self.wait_until(is_over, is_hurried)
    }

    /// Closes the queue and waits until the reader has ended. Gives up on a reader that takes
    /// nothing, and returns false.
    pub fn finish(&self) -> bool {
        self.lock().is_closed = true;
        self.came.notify_one();
        self.wait_until(|_| false, &|| true)
    }

    fn wait_until(&self, is_over: impl Fn(&State) -> bool, is_hurried: &dyn Fn() -> bool) -> bool {
        let mut state = self.lock();
        let (mut taken, mut since) = (state.taken, Instant::now());
        while !state.is_abandoned && !is_over(&state) {
            if state.taken != taken || !is_hurried() {
                (taken, since) = (state.taken, Instant::now());
            } else if state.is_stuck || since.elapsed() >= self.patience {
                state.is_stuck = true;
                return false;
            }
            let waited = self.went.wait_timeout(state, POLL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Called when the reader ends: discards all events and wakes everyone who waits.
    pub fn abandon(&self) {
        let mut state = self.lock();
        state.is_abandoned = true;
        state.waiting.clear();
        self.went.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::event::{Save, Time, What};
    use std::sync::Arc;

    const SHORT: Duration = Duration::from_millis(200);

    fn save(iter: u64) -> Event {
        let what = What::Save(Arc::new(Save { iter, path: String::new(), ms: 1.0 }));
        Event { what, time: Time { unix_time: 0.0, seconds: iter as f64 } }
    }

    fn event(queue: &Queue) -> (Dropped, Option<Event>) {
        match queue.take() {
            Some(Taken::Event { dropped, event }) => (dropped, event),
            Some(Taken::Settle) | None => panic!("no event"),
        }
    }

    fn waited(call: impl FnOnce()) -> Duration {
        let began = Instant::now();
        call();
        began.elapsed()
    }

    /// The loop waits once for a disk that hangs, and again only after the disk took something.
    #[test]
    fn only_the_first_event_waits_for_a_stuck_reader() {
        let queue = Queue::new(SHORT);
        (0..CAPACITY as u64).for_each(|iter| queue.send(&save(iter)));
        assert!(waited(|| queue.send(&save(3000))) >= SHORT);
        assert!(waited(|| (0..20).for_each(|_| queue.send(&save(3001)))) < SHORT);
        queue.take().unwrap();
        queue.send(&save(4000));
        assert!(waited(|| queue.send(&save(3002))) >= SHORT, "the reader was alive");
        let counts: Vec<Dropped> = (1..=CAPACITY).map(|_| event(&queue).0).collect();
        let (last, others) = counts.split_last().unwrap();
        assert_eq!(*last, Dropped { iterations: 0, others: 21 });
        assert!(others.iter().all(|dropped| *dropped == Dropped::default()));
    }

    #[test]
    fn a_flush_that_hurries_gives_up_on_a_stuck_reader_only() {
        let queue = Queue::new(SHORT);
        assert!(queue.flush(&|| true), "it is empty");
        queue.send(&save(0));
        let hurries_after = Instant::now() + 2 * SHORT;
        let patient = waited(|| assert!(!queue.flush(&|| Instant::now() > hurries_after)));
        assert!(patient >= 5 * SHORT / 2, "{patient:?}");
        assert!(waited(|| assert!(!queue.finish())) < SHORT, "it has waited before");
        queue.take().unwrap();
        assert!(queue.take().is_none());
        assert!(queue.flush(&|| true));
    }

    /// A notice got its time, then waited, and was added after a newer event.
    #[test]
    fn times_never_go_back() {
        let queue = Queue::new(SHORT);
        [1, 5, 3, 6].into_iter().for_each(|seconds| queue.send(&save(seconds)));
        let times = [(); 4].map(|()| event(&queue).1.unwrap().time.seconds);
        assert_eq!(times, [1.0, 5.0, 5.0, 6.0]);
    }

    #[test]
    fn a_reader_settles_behind_the_events_so_far() {
        let queue = Queue::new(SHORT);
        assert!(queue.wait_settled(queue.ask_to_settle()), "there was no event");
        [1, 2].into_iter().for_each(|iter| queue.send(&save(iter)));
        let asked = queue.ask_to_settle();
        queue.send(&save(3));
        let settled = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.wait_settled(asked));
            assert_eq!([(); 2].map(|()| event(&queue).1.unwrap().time.seconds), [1.0, 2.0]);
            assert!(matches!(queue.take(), Some(Taken::Settle)), "before the third event");
            assert_eq!(event(&queue).1.unwrap().time.seconds, 3.0);
            waiting.join().unwrap()
        });
        assert!(settled);
        // One that is asked twice, and one that is asked while it settles.
        queue.send(&save(4));
        let twice = [queue.ask_to_settle(), queue.ask_to_settle()];
        event(&queue);
        assert!(matches!(queue.take(), Some(Taken::Settle)));
        queue.send(&save(5));
        let later = queue.ask_to_settle();
        event(&queue);
        assert!(twice.into_iter().all(|asked| queue.wait_settled(asked)));
        assert!(waited(|| assert!(!queue.wait_settled(later))) >= SHORT, "it takes nothing");
        assert!(matches!(queue.take(), Some(Taken::Settle)));
        queue.lock().is_closed = true;
        assert!(queue.take().is_none() && queue.wait_settled(later));
    }
}
