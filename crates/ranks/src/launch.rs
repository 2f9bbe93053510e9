//! Which rank this process is, from the variables that launchers set. The first launcher whose set
//! of variables is complete wins; a set of which only a part is there is an error, unless another
//! one is complete.

use crate::slurm::{first_host, tasks_on};
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;
use thiserror::Error;

/// The most ranks that a run may have.
pub const MOST_RANKS: usize = 4096;

/// Ports that are tried one after the other, where the launcher does not fix one.
pub const PORTS: u16 = 16;

/// The variable with the address of rank 0, `host:port`, for any launcher.
pub const MEETING: &str = "FITGPT_MEETING";

/// The variable with the seconds without a sign of another rank after which it is given up.
pub const SILENCE: &str = "FITGPT_SILENCE";

/// How long that is without the variable.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The seconds that may be asked for. Heartbeats may come a second apart, so that fewer than two
/// would blame ranks that are well.
const PATIENCES: RangeInclusive<u64> = 2..=86_400;

/// SLURM's numbers of steps that are shells and batch scripts are above this.
const LAST_STEP: u64 = 0xffff_fff0;

/// Looks a variable up.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Who started this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// Nobody: a run of one rank.
    Nobody,
    /// `fitgpt train --gpus=N`.
    Fitgpt,
    /// `torchrun`, or whoever sets its variables.
    Torchrun,
    /// SLURM's `srun`.
    Srun,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// `mpiexec` of MPICH and its relatives.
    Mpich,
}

impl Launcher {
    /// All that set variables, in the order in which they are asked.
    pub const ALL: [Launcher; 5] =
        [Launcher::Fitgpt, Launcher::Torchrun, Launcher::Srun, Launcher::OpenMpi, Launcher::Mpich];

    /// The variables of rank, number of ranks and local rank; of the last two also other names.
    const fn names(self) -> [&'static [&'static str]; 3] {
        match self {
            Launcher::Nobody => [&[], &[], &[]],
            Launcher::Fitgpt => [&["FITGPT_RANK"], &["FITGPT_RANKS"], &["FITGPT_LOCAL_RANK"]],
            Launcher::Torchrun => [&["RANK"], &["WORLD_SIZE"], &["LOCAL_RANK"]],
            Launcher::Srun => {
                [&["SLURM_PROCID"], &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"], &["SLURM_LOCALID"]]
            }
            Launcher::OpenMpi => [
                &["OMPI_COMM_WORLD_RANK"],
                &["OMPI_COMM_WORLD_SIZE"],
                &["OMPI_COMM_WORLD_LOCAL_RANK"],
            ],
            Launcher::Mpich => {
                [&["PMI_RANK"], &["PMI_SIZE"], &["MPI_LOCALRANKID", "PMI_LOCAL_RANK"]]
            }
        }
    }

    /// The variables of the number of ranks on this machine.
    const fn local_sizes(self) -> &'static [&'static str] {
        match self {
            Launcher::Nobody | Launcher::Srun => &[],
            Launcher::Fitgpt => &["FITGPT_LOCAL_RANKS"],
            Launcher::Torchrun => &["LOCAL_WORLD_SIZE"],
            Launcher::OpenMpi => &["OMPI_COMM_WORLD_LOCAL_SIZE"],
            Launcher::Mpich => &["MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"],
        }
    }

    /// The variables that tell one job from another.
    const fn identities(self) -> &'static [&'static str] {
        match self {
            Launcher::Nobody => &[],
            Launcher::Fitgpt => &[MEETING],
            Launcher::Torchrun => {
                &["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"]
            }
            Launcher::Srun => &["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"],
            Launcher::OpenMpi => &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", MEETING],
            Launcher::Mpich => &["PMI_JOBID", MEETING, "MASTER_ADDR", "MASTER_PORT"],
        }
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Launcher::Nobody => "no launcher",
            Launcher::Fitgpt => "fitgpt --gpus",
            Launcher::Torchrun => "torchrun",
            Launcher::Srun => "srun",
            Launcher::OpenMpi => "mpirun (Open MPI)",
            Launcher::Mpich => "mpiexec (MPICH)",
        })
    }
}

/// Where rank 0 listens: the first of these ports that is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeetingPlace {
    /// A name or an address of rank 0's machine.
    pub host: String,
    /// The first port.
    pub port: u16,
    /// How many ports may be tried, from the first one on.
    pub ports: u16,
}

impl fmt::Display for MeetingPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ports {
            0 | 1 => write!(f, "{}:{}", self.host, self.port),
            more => write!(f, "{}:{}-{}", self.host, self.port, self.port.saturating_add(more - 1)),
        }
    }
}

/// This process among the ranks of its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Who said so.
    pub launcher: Launcher,
    /// This rank, from 0.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
    /// This rank among those of its machine, from 0.
    pub local_rank: usize,
    /// How many are on this machine, where the launcher says so.
    pub local_ranks: Option<usize>,
    /// Where rank 0 listens, where that is known. Else it must be told by MPI.
    pub meeting: Option<MeetingPlace>,
    /// A text that is the same on all ranks of this job and differs between jobs.
    pub job: String,
    /// How long ranks wait for a sign of each other.
    pub patience: Duration,
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.ranks, self.launcher) {
            (1, Launcher::Nobody) => write!(f, "one rank"),
            (1, launcher) => write!(f, "one rank, from {launcher}"),
            (ranks, launcher) => write!(f, "rank {} of {ranks}, from {launcher}", self.rank),
        }
    }
}

/// Variables that make no sense.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LaunchError {
    /// Only a part of a set is there.
    #[error("{name}={value} is set, but {missing} is not; {launcher} sets both")]
    Half {
        /// The variable that is set.
        name: &'static str,
        /// Its value.
        value: String,
        /// The first that is missing.
        missing: &'static str,
        /// Whose variables these are.
        launcher: Launcher,
    },
    /// Not a number, or a number that nobody has.
    #[error("{name}={value} is not {expected}")]
    Value {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        expected: String,
    },
}

/// Reads the variables.
///
/// # Errors
/// No set is complete and one is there in part, or the one that counts makes no sense.
pub fn from_variables(get: Variables) -> Result<Launch, LaunchError> {
    let mut half = None;
    for launcher in Launcher::ALL {
        match read(launcher, get)? {
            Read::Complete(launch) => return place(inner(launch, get)?, get),
            Read::Half(error) => half = half.or(Some(error)),
            Read::Absent => {}
        }
    }
    match half {
        Some(error) => Err(error),
        None => Ok(alone(Launcher::Nobody)),
    }
}

/// A run of one rank.
fn alone(launcher: Launcher) -> Launch {
    let (rank, ranks, local_rank, local_ranks) = (0, 1, 0, Some(1));
    let (meeting, job, patience) = (None, String::new(), PATIENCE);
    Launch { launcher, rank, ranks, local_rank, local_ranks, meeting, job, patience }
}

/// What there is of a launcher's set.
enum Read {
    Complete(Launch),
    Half(LaunchError),
    Absent,
}

/// A variable that is set to something.
fn value(names: &[&'static str], get: Variables) -> Option<(&'static str, String)> {
    let set = |name: &'static str| Some((name, get(name)?.trim().to_owned()));
    names.iter().copied().filter_map(set).find(|(_, value)| !value.is_empty())
}

fn number(name: &'static str, value: &str, limit: usize) -> Result<usize, LaunchError> {
    let parsed = value.parse::<usize>().ok().filter(|number| *number < limit);
    parsed.ok_or_else(|| {
        let expected = format!("a number from 0 to {}", limit.saturating_sub(1));
        LaunchError::Value { name, value: shown(value), expected }
    })
}

/// A value for a message: variables may hold anything.
fn shown(value: &str) -> String {
    let clean = value.chars().map(|c| if c.is_control() { '?' } else { c });
    let short: String = clean.take(60).collect();
    if value.chars().count() > 60 { format!("{short}…") } else { short }
}

fn read(launcher: Launcher, get: Variables) -> Result<Read, LaunchError> {
    if launcher == Launcher::Srun && !in_a_step(get)? {
        return Ok(Read::Absent);
    }
    let names = launcher.names();
    let values = names.map(|names| value(names, get));
    let (rank, size, local) = match values {
        [Some(rank), Some(size), Some(local)] => (rank, size, local),
        values => return Ok(partly(launcher, names, values)),
    };
    let ranks = number(size.0, &size.1, MOST_RANKS + 1)?;
    let below = |(name, value): (&'static str, String), limit: usize, of: &str| {
        let number = number(name, &value, MOST_RANKS)?;
        if number < limit {
            return Ok(number);
        }
        let expected = format!("below {of}={limit}");
        Err(LaunchError::Value { name, value, expected })
    };
    let rank = below(rank, ranks, size.0)?;
    let local_size = local_size(launcher, ranks, get)?;
    let (local_limit, limit_name) = local_size.unwrap_or((ranks, size.0));
    let local_rank = below(local, local_limit, limit_name)?;
    if ranks == 1 {
        return Ok(Read::Complete(alone(launcher)));
    }
    let local_ranks = local_size.map(|(size, _)| size);
    let job = job(launcher, get);
    let (meeting, patience) = (None, PATIENCE);
    let launch = Launch { launcher, rank, ranks, local_rank, local_ranks, meeting, job, patience };
    Ok(Read::Complete(launch))
}

/// A set that is not complete. Containers set `WORLD_SIZE=1` or `LOCAL_RANK=0` for runs of one
/// rank; that is no launch.
fn partly(
    launcher: Launcher,
    names: [&'static [&'static str]; 3],
    values: [Option<(&'static str, String)>; 3],
) -> Read {
    let missing = names.iter().zip(&values).find(|(_, value)| value.is_none());
    let missing = missing.and_then(|(names, _)| names.first().copied()).unwrap_or_default();
    let trivial = ["0", "1", "0"];
    let told = values
        .into_iter()
        .zip(trivial)
        .find(|(value, trivial)| value.as_ref().is_some_and(|(_, value)| value != trivial));
    match told.and_then(|(value, _)| value) {
        Some((name, value)) => {
            Read::Half(LaunchError::Half { name, value: shown(&value), missing, launcher })
        }
        None => Read::Absent,
    }
}

/// Whether `srun` started this process. A shell of `salloc` and a batch script have the job's
/// variables, even `SLURM_PROCID=0`, but no step, or one with a number beyond those of real ones.
fn in_a_step(get: Variables) -> Result<bool, LaunchError> {
    let Some((name, value)) = value(&["SLURM_STEP_ID", "SLURM_STEPID"], get) else {
        return Ok(false);
    };
    match value.parse::<u64>() {
        Ok(step) => Ok(step < LAST_STEP),
        Err(_) => {
            let expected = "the number of a step".to_owned();
            Err(LaunchError::Value { name, value: shown(&value), expected })
        }
    }
}

/// How many ranks are on this machine, and the variable that says so.
fn local_size(
    launcher: Launcher,
    ranks: usize,
    get: Variables,
) -> Result<Option<(usize, &'static str)>, LaunchError> {
    if launcher == Launcher::Srun {
        let name = "SLURM_STEP_TASKS_PER_NODE";
        let (list, node) = (value(&[name], get), value(&["SLURM_NODEID"], get));
        let tasks = list.zip(node).and_then(|((_, list), (_, node))| {
            let tasks = tasks_on(node.parse().ok()?, &list)?;
            (1..=ranks).contains(&tasks).then_some((tasks, name))
        });
        return Ok(tasks);
    }
    match value(launcher.local_sizes(), get) {
        Some((name, text)) => {
            let size = number(name, &text, ranks + 1)?;
            if size == 0 {
                let expected = "at least 1".to_owned();
                return Err(LaunchError::Value { name, value: text, expected });
            }
            Ok(Some((size, name)))
        }
        None if launcher == Launcher::Fitgpt => Ok(Some((ranks, "FITGPT_RANKS"))),
        None => Ok(None),
    }
}

/// `mpirun` inside a SLURM job starts its helpers with `srun`, and the ranks inherit the helpers'
/// variables. So where an MPI launcher's set contradicts SLURM's, it is the inner one and counts.
fn inner(launch: Launch, get: Variables) -> Result<Launch, LaunchError> {
    if launch.launcher != Launcher::Srun {
        return Ok(launch);
    }
    for launcher in [Launcher::OpenMpi, Launcher::Mpich] {
        if let Read::Complete(other) = read(launcher, get)?
            && (other.rank, other.ranks) != (launch.rank, launch.ranks)
        {
            return Ok(other);
        }
    }
    Ok(launch)
}

/// A text that only this job has.
fn job(launcher: Launcher, get: Variables) -> String {
    let mut text = launcher.to_string();
    for name in launcher.identities() {
        if let Some((name, value)) = value(&[name], get) {
            text.push_str(&format!(" {name}={value}"));
        }
    }
    text
}

/// How long ranks wait for a sign of each other.
fn patience(get: Variables) -> Result<Duration, LaunchError> {
    let Some((name, text)) = value(&[SILENCE], get) else { return Ok(PATIENCE) };
    let seconds = text.parse().ok().filter(|seconds| PATIENCES.contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| {
        let expected = format!("seconds from {} to {}", PATIENCES.start(), PATIENCES.end());
        LaunchError::Value { name, value: shown(&text), expected }
    })
}

/// Adds how long ranks wait, and where rank 0 listens.
fn place(mut launch: Launch, get: Variables) -> Result<Launch, LaunchError> {
    if launch.ranks == 1 {
        return Ok(launch);
    }
    launch.patience = patience(get)?;
    if let Some((name, text)) = value(&[MEETING], get) {
        let parsed = text.rsplit_once(':').and_then(|(host, port)| {
            let port = port.parse::<u16>().ok().filter(|port| *port > 0)?;
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            (!host.is_empty()).then_some(MeetingPlace { host, port, ports: 1 })
        });
        let expected = "host:port".to_owned();
        let wrong = || LaunchError::Value { name, value: shown(&text), expected };
        launch.meeting = Some(parsed.ok_or_else(wrong)?);
        return Ok(launch);
    }
    let host = value(&["MASTER_ADDR"], get).map(|(_, host)| host);
    let port = match value(&["MASTER_PORT"], get) {
        Some((name, text)) => Some(after(number(name, &text, 1 << 16)? as u16)),
        None => None,
    };
    let missing = |missing: &'static str| {
        let (name, value) = ("WORLD_SIZE", launch.ranks.to_string());
        Err(LaunchError::Half { name, value, missing, launcher: launch.launcher })
    };
    launch.meeting = match (launch.launcher, host, port) {
        (Launcher::Fitgpt, _, _) => {
            let (name, value) = ("FITGPT_RANKS", launch.ranks.to_string());
            let launcher = launch.launcher;
            return Err(LaunchError::Half { name, value, missing: MEETING, launcher });
        }
        (_, Some(host), Some(port)) => Some(MeetingPlace { host, port, ports: PORTS }),
        (Launcher::Torchrun, None, _) => return missing("MASTER_ADDR"),
        (Launcher::Torchrun, _, None) => return missing("MASTER_PORT"),
        (Launcher::Srun, host, port) => {
            let port = port.unwrap_or_else(|| port_of(&launch.job));
            let host = host.or_else(|| slurm_host(get));
            host.map(|host| MeetingPlace { host, port, ports: PORTS })
        }
        _ => None,
    };
    Ok(launch)
}

/// The machine of rank 0: the first one of the step. The machine on which `srun` was called may be
/// another, but is better than nothing.
fn slurm_host(get: Variables) -> Option<String> {
    let listed = value(&["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"], get);
    let first = listed.and_then(|(_, list)| first_host(&list));
    first.or_else(|| value(&["SLURM_LAUNCH_NODE_IPADDR"], get).map(|(_, address)| address))
}

/// The ports after the launcher's own, on which torchrun's agent listens; at the end those before.
fn after(port: u16) -> u16 {
    match port.checked_add(PORTS) {
        Some(_) => port + 1,
        None => port - PORTS,
    }
}

/// A port for a job whose launcher names none: below those that systems give out by themselves.
fn port_of(job: &str) -> u16 {
    10_000 + (crate::meeting::token(job) % 20_000) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_set(set: &str) -> Result<Launch, String> {
        let pairs: Vec<(&str, &str)> =
            set.split_whitespace().map(|pair| pair.split_once('=').unwrap()).collect();
        let get = |name: &str| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        from_variables(&get).map_err(|error| error.to_string())
    }

    /// One line with everything, for the tables.
    fn told(launch: &Launch) -> String {
        let local = launch.local_ranks.map_or("?".to_owned(), |local| local.to_string());
        let meeting = launch.meeting.as_ref().map_or("nowhere".to_owned(), ToString::to_string);
        format!("{launch}; local {} of {local}; {meeting}", launch.local_rank)
    }

    #[test]
    fn silence_is_read() {
        let seconds = |more: &str| {
            let launch = read_set(&format!("PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 {more}"));
            launch.map(|launch| launch.patience.as_secs())
        };
        assert_eq!(seconds(""), Ok(60));
        assert_eq!(seconds("FITGPT_SILENCE=2"), Ok(2));
        for wrong in ["1", "90000", "soon", "-5", "2.5"] {
            let said = seconds(&format!("FITGPT_SILENCE={wrong}")).unwrap_err();
            assert_eq!(said, format!("FITGPT_SILENCE={wrong} is not seconds from 2 to 86400"));
        }
        assert_eq!(read_set("FITGPT_SILENCE=soon").unwrap().ranks, 1, "nobody to wait for");
    }

    const TORCHRUN: &str = "RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=n1 \
                            MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none";
    const SRUN: &str = "SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=5 SLURM_NTASKS=8 \
                        SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=1 SLURM_NODEID=1 \
                        SLURM_STEP_TASKS_PER_NODE=4(x2) SLURM_STEP_NODELIST=gpu[07-08] \
                        SLURM_LAUNCH_NODE_IPADDR=10.0.0.1";
    const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 \
                            OMPI_COMM_WORLD_LOCAL_RANK=2 OMPI_COMM_WORLD_LOCAL_SIZE=3 \
                            PMIX_NAMESPACE=prterun-1";
    const MPICH: &str = "PMI_RANK=1 PMI_SIZE=3 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=3 PMI_FD=9";
    const OWN: &str =
        "FITGPT_RANK=1 FITGPT_RANKS=2 FITGPT_LOCAL_RANK=1 FITGPT_MEETING=127.0.0.1:4000";
    /// What `sbatch` gives its script, and `salloc` its shell: rank 0 of four, but no step.
    const BATCH: &str = "SLURM_JOB_ID=77 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 \
                         SLURM_NODEID=0 SLURM_JOB_NODELIST=gpu[07-08] SLURM_TASKS_PER_NODE=2(x2)";

    #[test]
    fn every_launcher_is_understood() {
        let srun_port = port_of("srun SLURM_JOB_ID=77 SLURM_STEP_ID=0");
        let srun =
            format!("rank 5 of 8, from srun; local 1 of 4; gpu07:{srun_port}-{}", srun_port + 15);
        let interactive = BATCH.to_owned() + " SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_TASKS=1";
        for (set, want) in [
            ("", "one rank; local 0 of 1; nowhere"),
            ("HOME=/root PATH=/bin", "one rank; local 0 of 1; nowhere"),
            (TORCHRUN, "rank 1 of 4, from torchrun; local 1 of 2; n1:29501-29516"),
            (SRUN, &srun),
            (OPEN_MPI, "rank 2 of 3, from mpirun (Open MPI); local 2 of 3; nowhere"),
            (MPICH, "rank 1 of 3, from mpiexec (MPICH); local 1 of 3; nowhere"),
            (OWN, "rank 1 of 2, from fitgpt --gpus; local 1 of 2; 127.0.0.1:4000"),
            (BATCH, "one rank; local 0 of 1; nowhere"),
            (&interactive, "one rank; local 0 of 1; nowhere"),
            (
                &format!("{OWN} {TORCHRUN}"),
                "rank 1 of 2, from fitgpt --gpus; local 1 of 2; \
                                            127.0.0.1:4000",
            ),
            (
                &format!("{MPICH} {TORCHRUN}"),
                "rank 1 of 4, from torchrun; local 1 of 2; \
                                              n1:29501-29516",
            ),
            (
                &format!("{BATCH} {MPICH}"),
                "rank 1 of 3, from mpiexec (MPICH); local 1 of 3; nowhere",
            ),
        ] {
            assert_eq!(told(&read_set(set).unwrap()), want, "{set}");
        }
    }

    #[test]
    fn a_world_of_one_is_one_rank() {
        for (set, want) in [
            ("RANK=0 WORLD_SIZE=1 LOCAL_RANK=0", "one rank, from torchrun"),
            (
                "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0",
                "one rank, from srun",
            ),
            ("PMI_RANK=0 PMI_SIZE=1 MPI_LOCALRANKID=0", "one rank, from mpiexec (MPICH)"),
            ("FITGPT_RANK=0 FITGPT_RANKS=1 FITGPT_LOCAL_RANK=0", "one rank, from fitgpt --gpus"),
            // Containers and tools leave these behind.
            ("WORLD_SIZE=1", "one rank"),
            ("LOCAL_RANK=0", "one rank"),
            ("RANK=0 WORLD_SIZE=1", "one rank"),
            ("RANK= WORLD_SIZE= LOCAL_RANK=", "one rank"),
            ("MASTER_ADDR=n1 MASTER_PORT=29500", "one rank"),
        ] {
            let launch = read_set(set).unwrap();
            assert_eq!(launch.to_string(), want, "{set}");
            assert_eq!((launch.rank, launch.ranks, launch.meeting), (0, 1, None), "{set}");
        }
    }

    /// A step may be smaller than its job; `mpirun` in a job starts its helpers with `srun`.
    #[test]
    fn the_inner_launcher_counts() {
        let smaller = SRUN.replace("SLURM_NTASKS=8", "SLURM_NTASKS=64");
        assert_eq!(read_set(&smaller).unwrap().ranks, 8);
        let helpers = SRUN.replace("PROCID=5", "PROCID=0").replace("TASKS=8", "TASKS=2");
        let mpirun = read_set(&format!("{helpers} {OPEN_MPI}")).unwrap();
        assert_eq!(mpirun.to_string(), "rank 2 of 3, from mpirun (Open MPI)");
        let agreeing = format!("{SRUN} PMI_RANK=5 PMI_SIZE=8 PMI_LOCAL_RANK=1");
        assert_eq!(read_set(&agreeing).unwrap().launcher, Launcher::Srun);
    }

    #[test]
    fn variables_for_the_meeting_help_every_launcher() {
        for (set, want) in [
            (format!("{SRUN} MASTER_ADDR=n1 MASTER_PORT=29500"), "n1:29501-29516"),
            (format!("{MPICH} MASTER_ADDR=n1 MASTER_PORT=29500"), "n1:29501-29516"),
            (format!("{MPICH} FITGPT_MEETING=n2:7"), "n2:7"),
            (format!("{OPEN_MPI} FITGPT_MEETING=[fe80::1]:7"), "fe80::1:7"),
            (format!("{TORCHRUN} FITGPT_MEETING=n2:7"), "n2:7"),
            (TORCHRUN.replace("29500", "65530"), "n1:65514-65529"),
            (TORCHRUN.replace("29500", "65519"), "n1:65520-65535"),
        ] {
            let launch = read_set(&set).unwrap();
            assert_eq!(launch.meeting.unwrap().to_string(), want, "{set}");
        }
        let launch = SRUN.replace("gpu[07-08]", "(null)");
        assert_eq!(read_set(&launch).unwrap().meeting.unwrap().host, "10.0.0.1");
    }

    #[test]
    fn jobs_differ_and_ranks_agree() {
        let job = |set: &str| read_set(set).unwrap().job;
        assert_eq!(job(TORCHRUN), job(&TORCHRUN.replace("RANK=1", "RANK=0")));
        assert_ne!(job(TORCHRUN), job(&TORCHRUN.replace("29500", "29501")));
        assert_ne!(job(TORCHRUN), job(&format!("{TORCHRUN} TORCHELASTIC_RESTART_COUNT=1")));
        assert_eq!(job(SRUN), job(&SRUN.replace("PROCID=5", "PROCID=4")));
        assert_ne!(job(SRUN), job(&SRUN.replace("STEP_ID=0", "STEP_ID=1")));
    }

    #[test]
    fn nonsense_names_the_variable_and_its_value() {
        let long = format!("RANK={} WORLD_SIZE=2 LOCAL_RANK=0", "9".repeat(100));
        let with = |from: &str, to: &str| TORCHRUN.replace(from, to);
        for (set, want) in [
            ("RANK=1 WORLD_SIZE=4", "RANK=1 is set, but LOCAL_RANK is not; torchrun sets both"),
            ("WORLD_SIZE=2", "WORLD_SIZE=2 is set, but RANK is not; torchrun sets both"),
            ("LOCAL_RANK=3", "LOCAL_RANK=3 is set, but RANK is not; torchrun sets both"),
            (&with("RANK=1 W", "RANK=four W"), "RANK=four is not a number from 0 to 4095"),
            (&with("RANK=1 W", "RANK=-1 W"), "RANK=-1 is not a number from 0 to 4095"),
            (&with("RANK=1 W", "RANK=4 W"), "RANK=4 is not below WORLD_SIZE=4"),
            (&with("SIZE=4 ", "SIZE=0 "), "RANK=1 is not below WORLD_SIZE=0"),
            (&with("SIZE=4 ", "SIZE=5000 "), "WORLD_SIZE=5000 is not a number from 0 to 4096"),
            (&with("SIZE=4 ", "SIZE=1e3 "), "WORLD_SIZE=1e3 is not a number from 0 to 4096"),
            (&with("LOCAL_RANK=1", "LOCAL_RANK=2"), "LOCAL_RANK=2 is not below LOCAL_WORLD_SIZE=2"),
            (
                &with("LOCAL_WORLD_SIZE=2", "LOCAL_WORLD_SIZE=0"),
                "LOCAL_WORLD_SIZE=0 is not at least 1",
            ),
            (
                &with("LOCAL_WORLD_SIZE=2", "LOCAL_WORLD_SIZE=9"),
                "LOCAL_WORLD_SIZE=9 is not a number",
            ),
            (&with("PORT=29500", "PORT=x"), "MASTER_PORT=x is not a number from 0 to 65535"),
            (&with("MASTER_PORT=29500", ""), "WORLD_SIZE=4 is set, but MASTER_PORT is not"),
            (&with("MASTER_ADDR=n1", ""), "WORLD_SIZE=4 is set, but MASTER_ADDR is not"),
            (
                &SRUN.replace("STEP_ID=0", "STEP_ID=x"),
                "SLURM_STEP_ID=x is not the number of a step",
            ),
            (
                &SRUN.replace("SLURM_LOCALID=1", ""),
                "SLURM_PROCID=5 is set, but SLURM_LOCALID is not",
            ),
            ("PMI_RANK=1 PMI_SIZE=2", "PMI_RANK=1 is set, but MPI_LOCALRANKID is not; mpiexec"),
            (
                "FITGPT_RANK=0 FITGPT_RANKS=2 FITGPT_LOCAL_RANK=0",
                "FITGPT_RANKS=2 is set, but \
                                                                 FITGPT_MEETING is not",
            ),
            (&OWN.replace("127.0.0.1:4000", "here"), "FITGPT_MEETING=here is not host:port"),
            (&OWN.replace("127.0.0.1:4000", ":1"), "FITGPT_MEETING=:1 is not host:port"),
            (&OWN.replace("4000", "0"), "FITGPT_MEETING=127.0.0.1:0 is not host:port"),
            (&long, "999… is not a number from 0 to 4095"),
        ] {
            let said = read_set(set).unwrap_err();
            let fine = said.contains(want) && said.len() < 200 && !said.contains('\n');
            assert!(fine, "{set}\n  said: {said}\n  want: {want}");
        }
    }

    /// Whatever the variables hold: an answer, no panic.
    #[test]
    fn rubbish_is_answered() {
        let values =
            ["", "0", "1", "2", "-1", "x", "99999999999999999999", "\n", "ü\0", "4(x2)", "[", ":"];
        let names: Vec<&str> = Launcher::ALL
            .iter()
            .flat_map(|launcher| launcher.names().concat())
            .chain(["MASTER_ADDR", "MASTER_PORT", MEETING, "SLURM_STEP_ID", "SLURM_NODEID"])
            .chain(["SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NODELIST", "LOCAL_WORLD_SIZE"])
            .collect();
        let mut state = 1u64;
        for _ in 0..20_000 {
            let seed = state;
            let get = |name: &str| {
                let at = names.iter().position(|known| *known == name)? as u64;
                let mixed = (seed ^ (at << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
                values.get(mixed as usize % (values.len() + 4)).map(|value| (*value).to_owned())
            };
            match from_variables(&get) {
                Ok(launch) => {
                    assert!(launch.rank < launch.ranks && launch.local_rank < launch.ranks)
                }
                Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
            }
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
    }
}
