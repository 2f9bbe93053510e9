//! Events on streams, and launches that were captured once.

use crate::context::DriverContext;
use crate::driver::Handle;
use crate::error::CudaError;
use plan::Lane;
use std::sync::Arc;

/// An event on a stream.
pub(crate) struct Event {
    context: Arc<DriverContext>,
    event: Handle,
}

// SAFETY: as for `DriverContext`.
unsafe impl Send for Event {}

impl Event {
    /// An event that measures time, or one that only orders.
    pub(crate) fn new(context: &Arc<DriverContext>, timed: bool) -> Result<Event, CudaError> {
        const DISABLE_TIMING: u32 = 2;
        context.enter()?;
        let mut event = std::ptr::null_mut();
        let flags = if timed { 0 } else { DISABLE_TIMING };
        // SAFETY: the pointer is to a local.
        context.check("cuEventCreate", unsafe {
            (context.api().cuEventCreate)(&raw mut event, flags)
        })?;
        Ok(Event { context: context.clone(), event })
    }

    pub(crate) fn record(&self) -> Result<(), CudaError> {
        self.record_on(Lane::Compute)
    }

    /// Records it on the stream of a lane.
    pub(crate) fn record_on(&self, lane: Lane) -> Result<(), CudaError> {
        let context = &self.context;
        // SAFETY: both handles are ours.
        context.check("cuEventRecord", unsafe {
            (context.api().cuEventRecord)(self.event, context.stream_of(lane))
        })
    }

    /// Makes what a lane's stream is given from now on wait for the event.
    pub(crate) fn hold_up(&self, lane: Lane) -> Result<(), CudaError> {
        let context = &self.context;
        // SAFETY: both handles are ours.
        context.check("cuStreamWaitEvent", unsafe {
            (context.api().cuStreamWaitEvent)(context.stream_of(lane), self.event, 0)
        })
    }

    /// Waits until the stream has passed the event.
    pub(crate) fn wait(&self) -> Result<(), CudaError> {
        // SAFETY: ours.
        self.context.check("cuEventSynchronize", unsafe {
            (self.context.api().cuEventSynchronize)(self.event)
        })
    }

    /// Seconds between two events that the stream has passed.
    pub(crate) fn seconds_since(&self, earlier: &Event) -> Result<f64, CudaError> {
        let mut ms = 0.0;
        // SAFETY: the pointer is to a local, both events are ours.
        self.context.check("cuEventElapsedTime", unsafe {
            (self.context.api().cuEventElapsedTime)(&raw mut ms, earlier.event, self.event)
        })?;
        Ok(f64::from(ms) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.context.enter();
        // SAFETY: ours, and destroyed once.
        unsafe { (self.context.api().cuEventDestroy_v2)(self.event) };
    }
}

/// Launches that were captured once and run as one.
pub(crate) struct Graph {
    context: Arc<DriverContext>,
    executable: Handle,
}

// SAFETY: as for `DriverContext`.
unsafe impl Send for Graph {}

impl Graph {
    /// Captures what `launches` adds to the stream, and uploads the graph.
    pub(crate) fn capture(
        context: &Arc<DriverContext>,
        launches: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<Graph, CudaError> {
        const THREAD_LOCAL: i32 = 1;
        context.enter()?;
        // SAFETY: the stream is ours and idle.
        context.check("cuStreamBeginCapture", unsafe {
            (context.api().cuStreamBeginCapture_v2)(context.stream(), THREAD_LOCAL)
        })?;
        let launched = launches();
        let mut graph = std::ptr::null_mut();
        // SAFETY: the pointer is to a local. The capture must end also where a launch failed.
        let ended = context.check("cuStreamEndCapture", unsafe {
            (context.api().cuStreamEndCapture)(context.stream(), &raw mut graph)
        });
        launched.and(ended)?;
        let mut executable = std::ptr::null_mut();
        // SAFETY: the pointer is to a local, the graph was just made.
        let made = context.check("cuGraphInstantiate", unsafe {
            (context.api().cuGraphInstantiateWithFlags)(&raw mut executable, graph, 0)
        });
        // SAFETY: the executable does not need it any more.
        unsafe { (context.api().cuGraphDestroy)(graph) };
        made?;
        let graph = Graph { context: context.clone(), executable };
        // SAFETY: both handles are ours. What the upload takes is taken now, not at first launch.
        context.check("cuGraphUpload", unsafe {
            (context.api().cuGraphUpload)(graph.executable, context.stream())
        })?;
        Ok(graph)
    }

    pub(crate) fn launch(&self) -> Result<(), CudaError> {
        // SAFETY: both handles are ours.
        self.context.check("cuGraphLaunch", unsafe {
            (self.context.api().cuGraphLaunch)(self.executable, self.context.stream())
        })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.context.enter();
        // SAFETY: ours, and destroyed once; the owner has waited.
        unsafe { (self.context.api().cuGraphExecDestroy)(self.executable) };
    }
}
