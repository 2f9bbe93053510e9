//! Processor time of this process: the cost of a case, independent of how busy the machine is.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Processor time of all threads of this process.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32)
}
