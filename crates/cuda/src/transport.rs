//! How the ranks of a run reach each other: not at all, through NCCL between GPUs, or through the
//! host and an [`Exchange`]. The plan says what travels; this module moves it.

use crate::context::DriverContext;
use crate::driver::Handle;
use crate::error::CudaError;
use crate::executor::LoadError;
use crate::memory::{DeviceMemory, PinnedMemory};
use crate::nccl::Communicator;
use crate::stream::Graph;
use plan::ops::Op;
use plan::{BackendError, Exchange, Lane, Pieces, Plan, Rank, staged_bytes};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// How this rank reaches the others.
#[derive(Clone, Debug, Default)]
pub enum Transport {
    /// It has no others.
    #[default]
    Alone,
    /// Through NCCL. With one rank, every call is still made.
    Nccl(Arc<Communicator>),
    /// Through the host's memory, for GPUs that NCCL cannot join.
    Host(HostExchange),
}

impl Transport {
    /// Through the host's memory.
    pub fn host(exchange: Box<dyn Exchange>) -> Transport {
        let rank = Rank { rank: exchange.rank(), ranks: exchange.ranks() };
        Transport::Host(HostExchange { exchange: Arc::new(Mutex::new(exchange)), rank })
    }

    /// This rank.
    pub fn rank(&self) -> Rank {
        match self {
            Transport::Alone => Rank::ONLY,
            Transport::Nccl(communicator) => communicator.rank(),
            Transport::Host(host) => host.rank,
        }
    }
}

/// An exchange of host memory. It may serve one backend after another.
#[derive(Clone)]
pub struct HostExchange {
    exchange: Arc<Mutex<Box<dyn Exchange>>>,
    rank: Rank,
}

impl fmt::Debug for HostExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {} through the host", self.rank.rank, self.rank.ranks)
    }
}

/// What travels, with the bytes of each rank's piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Travel<At> {
    /// As [`Exchange::all_to_all`].
    AllToAll { send: At, received: At, pieces: Vec<usize> },
    /// As [`Exchange::all_gather`].
    AllGather { buffer: At, pieces: Vec<usize> },
}

impl<At: Copy> Travel<At> {
    /// The same between other places.
    pub(crate) fn at<To>(&self, place: impl Fn(At) -> To) -> Travel<To> {
        match self {
            Travel::AllToAll { send, received, pieces } => Travel::AllToAll {
                send: place(*send),
                received: place(*received),
                pieces: pieces.clone(),
            },
            Travel::AllGather { buffer, pieces } => {
                Travel::AllGather { buffer: place(*buffer), pieces: pieces.clone() }
            }
        }
    }

    /// Bytes at the first place, and at the second if there is one.
    fn bytes(&self, rank: Rank) -> [u64; 2] {
        let total = |pieces: &[usize]| pieces.iter().fold(0u64, |sum, &piece| sum + piece as u64);
        match self {
            Travel::AllToAll { pieces, .. } => {
                let own = pieces.get(rank.rank).copied().unwrap_or(0) as u64;
                [total(pieces), own * pieces.len() as u64]
            }
            Travel::AllGather { pieces, .. } => [total(pieces), 0],
        }
    }

    /// The same in a buffer that begins at `start`, with what is received behind what is sent.
    fn within(&self, start: u64, rank: Rank) -> Travel<u64> {
        let behind = start + self.bytes(rank)[0];
        match self.at(|_| start) {
            Travel::AllToAll { send, pieces, .. } => {
                Travel::AllToAll { send, received: behind, pieces }
            }
            gather @ Travel::AllGather { .. } => gather,
        }
    }
}

/// The transport of a backend, with the host memory that it needs.
pub(crate) struct Wire {
    context: Arc<DriverContext>,
    transport: Transport,
    rank: Rank,
    /// Pinned memory through which bytes pass between the device and the exchange.
    staging: Option<PinnedMemory>,
}

impl Wire {
    /// Allocates what it needs. Refuses a plan that was made for another rank.
    pub(crate) fn new(
        context: &Arc<DriverContext>,
        transport: &Transport,
        plan: &Plan,
    ) -> Result<Wire, LoadError> {
        let rank = transport.rank();
        check_rank(plan, rank)?;
        let staging = match transport {
            Transport::Host(_) if rank.has_others() => {
                Some(PinnedMemory::new(context, staged_bytes(&plan.schedule))?)
            }
            _ => None,
        };
        Ok(Wire { context: context.clone(), transport: transport.clone(), rank, staging })
    }

    /// Whether the host waits for what travels, so that no graph can contain it.
    pub(crate) fn is_staged(&self) -> bool {
        self.staging.is_some()
    }

    /// Whether other ranks can still be reached.
    pub(crate) fn check(&self) -> Result<(), CudaError> {
        match &self.transport {
            Transport::Nccl(communicator) => communicator.check(),
            Transport::Alone | Transport::Host(_) => Ok(()),
        }
    }

    /// Waits for the device, but not for ranks that are gone.
    pub(crate) fn settle(&self) {
        if let Transport::Nccl(communicator) = &self.transport {
            communicator.settle(&self.context);
        }
    }

    /// Moves bytes, in the order of the lane's stream.
    ///
    /// # Safety
    /// The device has the bytes of each place, and they are ours.
    pub(crate) unsafe fn travel(&self, lane: Lane, travel: &Travel<u64>) -> Result<(), CudaError> {
        match (&self.transport, &self.staging) {
            (Transport::Nccl(communicator), _) => {
                let stream = self.context.stream_of(lane);
                // SAFETY: the caller's promise.
                unsafe { through_nccl(communicator, stream, travel) }
            }
            (Transport::Host(host), Some(staging)) => {
                // SAFETY: as above.
                unsafe { self.through_host(host, staging, lane, travel) }
            }
            // One rank: everything is where it belongs.
            (Transport::Alone | Transport::Host(_), _) => Ok(()),
        }
    }

    /// # Safety
    /// As [`Wire::travel`].
    unsafe fn through_host(
        &self,
        host: &HostExchange,
        staging: &PinnedMemory,
        lane: Lane,
        travel: &Travel<u64>,
    ) -> Result<(), CudaError> {
        let [first, second] = travel.bytes(self.rank).map(|bytes| bytes as usize);
        if first + second > staging.bytes() {
            let room = staging.bytes();
            let what = format!("{} bytes travel through {room} of host memory", first + second);
            return Err(CudaError::Exchange(BackendError::Internal { what }));
        }
        // SAFETY: inside the memory, as just checked. The device uses it in stream order alone, and
        // the host after it has waited for the stream.
        let (start, behind) = unsafe { (staging.start(), staging.start().add(first)) };
        let context = &self.context;
        let mut exchange = host.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        match travel {
            Travel::AllToAll { send, received, pieces } => {
                // SAFETY: the caller's promise, and as above.
                unsafe { context.download(lane, start, *send, first) }?;
                context.synchronize_lane(lane)?;
                // SAFETY: two ranges that do not overlap; no copy is under way.
                let (sent, arrived) = unsafe {
                    let sent = std::slice::from_raw_parts(start, first);
                    (sent, std::slice::from_raw_parts_mut(behind, second))
                };
                exchange.all_to_all(sent, pieces, arrived).map_err(CudaError::Exchange)?;
                // SAFETY: as for the download.
                unsafe { context.upload(lane, *received, behind, second) }
            }
            Travel::AllGather { buffer, pieces } => {
                let before: usize = pieces.iter().take(self.rank.rank).sum();
                let own = pieces.get(self.rank.rank).copied().unwrap_or(0);
                let after = before + own;
                // SAFETY: this rank's piece, at its place on both sides.
                unsafe { context.download(lane, start.add(before), *buffer + before as u64, own) }?;
                context.synchronize_lane(lane)?;
                // SAFETY: no copy is under way.
                let all = unsafe { std::slice::from_raw_parts_mut(start, first) };
                exchange.all_gather(all, pieces).map_err(CudaError::Exchange)?;
                // SAFETY: the others' pieces, likewise.
                unsafe {
                    context.upload(lane, *buffer, start, before)?;
                    let to = *buffer + after as u64;
                    context.upload(lane, to, start.add(after), first - after)
                }
            }
        }
    }

    /// Makes every different call of NCCL once, and once in a graph, on memory that is freed
    /// afterwards: NCCL connects ranks and takes memory at first use. All ranks do so together.
    pub(crate) fn travel_once<At: Copy>(
        &self,
        travels: impl Iterator<Item = Travel<At>>,
        graphs: bool,
    ) -> Result<(), LoadError> {
        if !matches!(self.transport, Transport::Nccl(_)) {
            return Ok(());
        }
        let mut different: Vec<Travel<u64>> = Vec::new();
        for travel in travels {
            let travel = travel.within(0, self.rank);
            if !different.contains(&travel) {
                different.push(travel);
            }
        }
        let bytes = different.iter().map(|travel| travel.bytes(self.rank).iter().sum::<u64>());
        let Some(room) = bytes.max() else { return Ok(()) };
        let scratch = DeviceMemory::new(&self.context, room)?;
        let all = |lane: Lane| {
            different.iter().try_for_each(|travel| {
                let travel = travel.within(scratch.address(), self.rank);
                // SAFETY: the scratch has room for each.
                unsafe { self.travel(lane, &travel) }
            })
        };
        all(Lane::Communication)?;
        self.context.synchronize()?;
        if graphs {
            let graph = Graph::capture(&self.context, || all(Lane::Compute))?;
            graph.launch()?;
            self.context.synchronize()?;
        }
        Ok(self.check()?)
    }
}

/// # Safety
/// As [`Wire::travel`].
unsafe fn through_nccl(
    communicator: &Communicator,
    stream: Handle,
    travel: &Travel<u64>,
) -> Result<(), CudaError> {
    match travel {
        // SAFETY: the caller's promise.
        Travel::AllToAll { send, received, pieces } => unsafe {
            communicator.all_to_all(stream, (*send, *received), pieces)
        },
        // SAFETY: as above.
        Travel::AllGather { buffer, pieces } => unsafe {
            communicator.all_gather(stream, *buffer, pieces)
        },
    }
}

/// Refuses a plan that was made for another rank than the transport's.
fn check_rank(plan: &Plan, rank: Rank) -> Result<(), BackendError> {
    let steps = plan.schedule.segments.iter().flat_map(|segment| &segment.steps);
    let pieces = steps.filter_map(|step| match &step.op {
        Op::ReduceScatter(op) => Some(&op.pieces),
        Op::AllGather(op) => Some(&op.pieces),
        _ => None,
    });
    let is_other = |pieces: &&Pieces| (pieces.rank(), pieces.ranks()) != (rank.rank, rank.ranks);
    match pieces.into_iter().find(is_other) {
        None => Ok(()),
        Some(pieces) => {
            let (planned, of) = (pieces.rank(), pieces.ranks());
            let Rank { rank, ranks } = rank;
            let what =
                format!("a plan for rank {planned} of {of} in a process that is {rank} of {ranks}");
            Err(BackendError::Unsupported { what })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Rank = Rank { rank: 1, ranks: 3 };

    #[test]
    fn what_is_received_follows_what_is_sent() {
        let travel = Travel::AllToAll { send: 7, received: 9, pieces: vec![4, 8, 2] };
        assert_eq!(travel.bytes(SECOND), [14, 24]);
        let moved = Travel::AllToAll { send: 100, received: 114, pieces: vec![4, 8, 2] };
        assert_eq!(travel.within(100, SECOND), moved);
        let gather = Travel::AllGather { buffer: 7, pieces: vec![4, 8, 2] };
        assert_eq!(gather.bytes(SECOND), [14, 0]);
        assert_eq!(gather.within(100, SECOND).at(|at| at - 100), gather.at(|_| 0));
    }

    #[test]
    fn a_transport_knows_its_rank() {
        assert_eq!(Transport::default().rank(), Rank::ONLY);
        assert_eq!(Transport::host(Box::new(plan::OneRank)).rank(), Rank::ONLY);
    }
}
