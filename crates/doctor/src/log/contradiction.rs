//! Numbers of one message that cannot all be true. A diagnosis must say so instead of computing
//! with them.

/// A pair of numbers that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// More was free than was requested.
    FreeExceedsRequest {
        /// Bytes free.
        free: u64,
        /// Bytes requested.
        requested: u64,
    },
    /// The process holds nothing, yet PyTorch has allocated in it.
    ProcessHoldsNothing {
        /// Bytes that PyTorch has allocated.
        allocated: u64,
    },
    /// Less is reserved than is allocated.
    ReservedBelowAllocated {
        /// Bytes reserved.
        reserved: u64,
        /// Bytes allocated.
        allocated: u64,
    },
    /// The process, or PyTorch in it, holds more than the card has.
    HeldExceedsCapacity {
        /// Bytes held.
        held: u64,
        /// Bytes of the card.
        capacity: u64,
    },
    /// A negative number, printed as an unsigned one; as in the log.
    UnsignedWrap(String),
}
