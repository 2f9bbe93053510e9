//! Processor time of this process: what a case costs, however busy the machine is.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Time that all threads of the process spent computing.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32)
}
