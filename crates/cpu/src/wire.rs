//! The connection to other ranks, with the lengths of pieces in bytes. The list is reused, so that
//! a step allocates nothing.

use plan::{BackendError, Exchange, Pieces};

/// What ops between ranks send and receive through.
pub(crate) struct Wire {
    exchange: Box<dyn Exchange>,
    lengths: Vec<usize>,
}

impl Wire {
    pub(crate) fn new(exchange: Box<dyn Exchange>) -> Wire {
        let lengths = Vec::with_capacity(exchange.ranks());
        Wire { exchange, lengths }
    }

    /// As [`Exchange::all_to_all`], for elements of `size` bytes.
    pub(crate) fn all_to_all(
        &mut self,
        send: &[u8],
        (pieces, size): (&Pieces, usize),
        received: &mut [u8],
    ) -> Result<(), BackendError> {
        self.measure(pieces, size);
        self.exchange.all_to_all(send, &self.lengths, received)
    }

    /// As [`Exchange::all_gather`], for elements of `size` bytes.
    pub(crate) fn all_gather(
        &mut self,
        buffer: &mut [u8],
        (pieces, size): (&Pieces, usize),
    ) -> Result<(), BackendError> {
        self.measure(pieces, size);
        self.exchange.all_gather(buffer, &self.lengths)
    }

    fn measure(&mut self, pieces: &Pieces, size: usize) {
        self.lengths.clear();
        self.lengths.extend(pieces.lengths().iter().map(|&elements| elements as usize * size));
    }
}
