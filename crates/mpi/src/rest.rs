//! How MPI waits. MPICH polls without a pause; two ranks on one core then take the time that the
//! other one needs. It can sleep a little between polls instead, if a variable says so before it
//! starts.

/// MPICH's switch; an MPI that does not know it ignores it.
const SWITCH: &str = "MPIR_CVAR_ENABLE_HEAVY_YIELD";

/// Asks MPI to sleep while it waits, unless the variable is set already. Does nothing if the
/// process has several threads: the environment may only be changed by the only one.
pub fn rest_while_waiting() {
    let is_alone = std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1);
    if is_alone && std::env::var_os(SWITCH).is_none() {
        // SAFETY: there is no other thread that could read the environment meanwhile.
        unsafe { std::env::set_var(SWITCH, "1") }
    }
}
