//! The other ranks of a run: which rank this process is, what connects it with the others, whether
//! all agree, and what happens when one is gone.

use crate::screen;
use plan::{BackendError, Exchange, Rank};
use ranks::launch::from_variables;
use ranks::meeting::{Met, listen, listen_anywhere};
use ranks::{Facts, Farewell, Launch, LaunchError, Launcher, MeetError, Meeting, MeetingPlace};
use ranks::{Watch, WatchOptions};
use spec::{Connection, RunSpec, Settings, SpecError, Value};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};
use train::TrainError;
use train::run::Others;
use train::setup::Setup;

/// The exit code of a rank that ends because another one is gone.
const GONE: i32 = 5;

/// This process among the ranks of its run, before they have met.
pub struct Started {
    launch: Launch,
    /// The other ranks, if this process started them.
    children: Children,
}

/// Processes that this one started. They end with it: if it fails early, nobody else tells them.
#[derive(Default)]
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Started {
    /// Which rank this is. With `gpus=N` and no launcher, starts the others.
    pub fn find(settings: &Settings, arguments: &[String]) -> Result<Started, TrainError> {
        let get = |name: &str| std::env::var(name).ok();
        let launch = from_variables(&get).map_err(refused)?;
        let gpus = match settings.get("gpus").map(|setting| &setting.value) {
            Some(&Value::Int(gpus)) if gpus > 1 => gpus as usize,
            _ => return Ok(Started { launch, children: Children::default() }),
        };
        if launch.launcher != Launcher::Nobody {
            if launch.local_ranks.is_none_or(|there| there == gpus) {
                return Ok(Started { launch, children: Children::default() });
            }
            let what = format!(
                "--gpus={gpus}, but {} has started {} processes on this machine; leave --gpus out",
                launch.launcher,
                launch.local_ranks.unwrap_or(1)
            );
            return Err(SpecError::Conflict { what }.into());
        }
        Started::start(gpus, arguments)
    }

    /// For a run that must be the only one: on the user's own text, for which a model is chosen by
    /// measurement.
    pub fn alone(keys: &[String]) -> Result<Started, TrainError> {
        let get = |name: &str| std::env::var(name).ok();
        let launch = from_variables(&get).map_err(refused)?;
        if launch.ranks > 1 || keys.iter().any(|key| key.starts_with("--gpus=")) {
            let what = "a model for your own text is chosen by measuring one machine, so that it \
                        cannot be trained on several ranks; prepare the text (`fitgpt prepare`) \
                        and give a config file";
            return Err(SpecError::Conflict { what: what.to_string() }.into());
        }
        Ok(Started { launch, children: Children::default() })
    }

    /// Starts a process for each further GPU. This one is the first rank.
    fn start(gpus: usize, arguments: &[String]) -> Result<Started, TrainError> {
        let there = crate::device::gpu_count() as usize;
        if there < gpus {
            let what = format!(
                "--gpus={gpus}, but {there} can be used here (see `fitgpt devices`); for ranks on \
                 CPUs: mpiexec -n {gpus} fitgpt train …"
            );
            return Err(BackendError::Refused { what }.into());
        }
        let failed = |doing: &str, error: std::io::Error| {
            let what = format!("--gpus={gpus}: cannot {doing}: {error}");
            TrainError::Backend(BackendError::Refused { what })
        };
        let (listener, port) = listen_anywhere().map_err(met)?;
        drop(listener); // the meeting listens there again
        let place = format!("127.0.0.1:{port}");
        let program = std::env::current_exe().map_err(|error| failed("find fitgpt", error))?;
        let variables = |rank: usize| {
            let number = |number: usize| number.to_string();
            [
                ("FITGPT_RANK", number(rank)),
                ("FITGPT_RANKS", number(gpus)),
                ("FITGPT_LOCAL_RANK", number(rank)),
                ("FITGPT_LOCAL_RANKS", number(gpus)),
                (ranks::launch::MEETING, place.clone()),
            ]
        };
        let mut children = Children::default();
        for rank in 1..gpus {
            let mut command = Command::new(&program);
            command.arg("train").args(arguments).envs(variables(rank)).stdin(Stdio::null());
            let child = command.spawn().map_err(|error| failed("start a process", error))?;
            children.0.push(child);
        }
        let own = variables(0);
        let find = |name: &str| match own.iter().find(|(own, _)| *own == name) {
            Some((_, value)) => Some(value.clone()),
            None => std::env::var(name).ok(),
        };
        let launch = from_variables(&find).map_err(refused)?;
        Ok(Started { launch, children })
    }

    /// Which rank this is.
    pub fn rank(&self) -> Rank {
        Rank { rank: self.launch.rank, ranks: self.launch.ranks }
    }

    /// How many ranks share this machine.
    pub fn local_ranks(&self) -> usize {
        self.launch.local_ranks.unwrap_or(1).max(1)
    }

    /// This rank's number among those of this machine.
    pub fn local_rank(&self) -> usize {
        self.launch.local_rank
    }

    /// Whether the launcher may have given each rank its own GPU, so that all see it as the first.
    pub fn may_see_one_gpu(&self) -> bool {
        self.launch.launcher == Launcher::Srun
    }

    /// This rank in messages, "rank 2 on node7"; nothing in a run of one rank.
    pub fn name(&self) -> Option<String> {
        let Launch { rank, ranks: count, .. } = self.launch;
        (count > 1).then(|| format!("rank {rank} on {}", ranks::facts::host_name()))
    }

    /// One line about it; nothing in a run of one rank.
    pub fn line(&self) -> Option<String> {
        (self.launch.ranks > 1).then(|| {
            let (ranks, launcher) = (self.launch.ranks, self.launch.launcher);
            format!("ranks: {ranks}, started by {launcher}")
        })
    }

    /// Connects the ranks, compares what must be equal, and begins to watch. `uses_gpu` decides
    /// what 'auto' means.
    ///
    /// # Errors
    /// There is nothing that connects them. If they are connected and do not agree, or one does not
    /// come, prints which one and ends the process: MPI's end would wait for all ranks.
    pub fn join(self, setup: &Setup, uses_gpu: bool) -> Result<Fellows, TrainError> {
        let late = format!(
            "rank {} of {} on {} has waited {} s for the others to start MPI: one of them hangs, \
             or its machine cannot be reached",
            self.launch.rank,
            self.launch.ranks,
            ranks::facts::host_name(),
            self.launch.patience.as_secs()
        );
        let (mut connection, venue) = bounded(self.launch.patience, late, || {
            let mut connection = self.connect(&setup.spec, uses_gpu)?;
            let venue = Venue::find(&self.launch, &mut connection);
            Ok((connection, venue))
        })?;
        let met = venue.and_then(|venue| {
            let watch = self.meet(setup, &mut connection, &venue)?;
            Ok((venue, watch))
        });
        match met {
            Ok((venue, watch)) => {
                let Started { launch, children } = self;
                Ok(Fellows { launch, connection, venue, watch, children })
            }
            // Before `connection` is dropped, which would end MPI and so wait for all ranks.
            Err(error) => leave_with(&error),
        }
    }

    /// Compares what must be equal, and begins to watch.
    fn meet(
        &self,
        setup: &Setup,
        connection: &mut Link,
        venue: &Venue,
    ) -> Result<Watch, TrainError> {
        let payload = match (&*connection, self.launch.rank) {
            (Link::Nccl { .. }, 0) => crate::device::nccl_id()?,
            _ => Vec::new(),
        };
        let facts = Facts::new(env!("CARGO_PKG_VERSION"), facts(setup));
        let found = venue.meet(&self.launch, &facts, &payload)?;
        if let Link::Nccl { id, .. } = connection {
            id.clone_from(&found.payload);
        }
        let watch = Watch::start(found, WatchOptions::of(self.launch.patience), |failure| {
            leave_in_any_case();
            yield_to_own_failure();
            leave_saying(&failure.to_string(), GONE)
        });
        watch.map_err(|error| TrainError::Threads { error })
    }

    /// What the ranks' tensors travel by.
    fn connect(&self, spec: &RunSpec, uses_gpu: bool) -> Result<Link, TrainError> {
        let Launch { launcher, rank, ranks, .. } = self.launch;
        let by_nccl = match spec.ranks.backend {
            Connection::Auto | Connection::Gloo => uses_gpu,
            Connection::Nccl if !uses_gpu => {
                let what = "backend='nccl' connects GPUs, and this run computes on the CPU; use \
                            backend='mpi'"
                    .to_string();
                return Err(SpecError::Conflict { what }.into());
            }
            Connection::Nccl => true,
            Connection::Mpi => false,
        };
        if by_nccl {
            let guide = match (launcher, &self.launch.meeting) {
                (Launcher::OpenMpi | Launcher::Mpich, None) => {
                    Some(Box::new(mpi::World::start_as(rank, ranks)?))
                }
                _ => None,
            };
            return Ok(Link::Nccl { id: Vec::new(), guide });
        }
        // Under a launcher that is not MPI's, MPI_Init would make as many worlds of one rank.
        if matches!(launcher, Launcher::Torchrun | Launcher::Fitgpt) {
            let what = format!(
                "{launcher} cannot start ranks that MPI connects; use the mpiexec of your MPI: \
                 mpiexec -n {ranks} fitgpt train …"
            );
            return Err(SpecError::Conflict { what }.into());
        }
        Ok(Link::Mpi(Box::new(mpi::World::start_as(rank, ranks)?)))
    }
}

/// Set when this rank has failed itself and is about to say so.
static FAILING: AtomicBool = AtomicBool::new(false);

/// This rank has failed: what it says about it counts, not that another one failed likewise.
pub fn failing() {
    FAILING.store(true, Ordering::Relaxed);
}

/// Ends the process even if its last line cannot be written: a main thread that is stuck may hold
/// the console. If the system has no thread for this, a held console can still keep the process.
fn leave_in_any_case() {
    const LAST: Duration = Duration::from_secs(15);
    let leave = || {
        std::thread::sleep(LAST);
        mpi::leave(GONE)
    };
    let _ = std::thread::Builder::new().name("fitgpt-leave".to_owned()).spawn(leave);
}

/// Gives this rank a moment to fail for the same reason as the other one, such as a loss that is
/// not finite, and then the time to say so and to leave by itself.
fn yield_to_own_failure() {
    const MOMENT: Duration = Duration::from_secs(1);
    const LAST_WORDS: Duration = Duration::from_secs(8);
    let waited = |time: Duration| {
        let start = Instant::now();
        while start.elapsed() < time && !FAILING.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    waited(MOMENT);
    if FAILING.load(Ordering::Relaxed) {
        std::thread::sleep(LAST_WORDS);
    }
}

/// What the ranks' tensors travel by.
pub enum Link {
    /// NCCL, with the id that rank 0 has made.
    Nccl {
        /// The id.
        id: Vec<u8>,
        /// MPI, where only it can tell the others the address of rank 0.
        guide: Option<Box<mpi::World>>,
    },
    /// MPI.
    Mpi(Box<mpi::World>),
    /// MPI, given to the backend.
    Given,
}

/// The other ranks, connected and watched.
pub struct Fellows {
    launch: Launch,
    connection: Link,
    venue: Venue,
    watch: Watch,
    children: Children,
}

impl Fellows {
    /// Compares one more thing that all ranks must have in common.
    pub fn agree(&self, name: &str, value: &str) -> Result<(), TrainError> {
        let list = vec![(name.to_string(), value.to_string())];
        let facts = Facts::new(env!("CARGO_PKG_VERSION"), list);
        self.venue.meet(&self.launch, &facts, &[]).map(drop)
    }

    /// NCCL's id, if NCCL connects the ranks.
    pub fn nccl_id(&self) -> Option<Vec<u8>> {
        match &self.connection {
            Link::Nccl { id, .. } => Some(id.clone()),
            Link::Mpi(_) | Link::Given => None,
        }
    }

    /// MPI, for the backend; none if NCCL connects the ranks.
    pub fn exchange(&mut self) -> Option<Box<dyn Exchange>> {
        match std::mem::replace(&mut self.connection, Link::Given) {
            Link::Mpi(world) => Some(Box::new(Counted { world, steps: self.steps() })),
            other => {
                self.connection = other;
                None
            }
        }
    }

    /// The count of this rank's steps, which tells the others that it does not hang.
    pub fn steps(&self) -> Arc<AtomicU64> {
        self.watch.steps()
    }

    /// This rank begins something that the others do too.
    pub fn step(&self) {
        self.steps().fetch_add(1, Ordering::Relaxed);
    }

    /// Leaves the others when the run has ended.
    pub fn goodbye(self) -> Result<(), TrainError> {
        let Fellows { watch, connection, mut children, .. } = self;
        let ended = watch.goodbye(Farewell::Finished);
        drop(connection);
        for child in &mut children.0 {
            let _ = child.wait();
        }
        let gone = |failure: ranks::Failure| BackendError::Device { what: failure.to_string() };
        ended.map_err(gone).map_err(TrainError::from)
    }

    /// Leaves the others after an error, which they print too, and ends the process: MPI and NCCL
    /// would wait for ranks that wait for this one.
    pub fn fail(self, error: &TrainError) -> ! {
        let said = error.to_string();
        match self.watch.goodbye(Farewell::Failed(said.clone())) {
            // Another rank was gone first, and its line has been printed.
            Err(_) => mpi::leave(GONE),
            Ok(()) => {
                screen::error(&said);
                mpi::leave(i32::from(error.exit_code()))
            }
        }
    }
}

impl Others for Fellows {
    fn progress(&self, iteration: u64) {
        self.watch.progress(iteration);
    }

    fn allow(&self, time: Duration) {
        self.watch.allow(time);
    }
}

/// MPI that counts what this rank asks of it, so that whoever does not come to an exchange is
/// behind those that wait in it.
struct Counted {
    world: Box<mpi::World>,
    steps: Arc<AtomicU64>,
}

impl Counted {
    fn world(&mut self) -> &mut mpi::World {
        self.steps.fetch_add(1, Ordering::Relaxed);
        &mut self.world
    }
}

impl Exchange for Counted {
    fn rank(&self) -> usize {
        self.world.rank()
    }

    fn ranks(&self) -> usize {
        self.world.ranks()
    }

    fn all_to_all(
        &mut self,
        send: &[u8],
        pieces: &[usize],
        received: &mut [u8],
    ) -> Result<(), BackendError> {
        self.world().all_to_all(send, pieces, received)
    }

    fn all_gather(&mut self, buffer: &mut [u8], pieces: &[usize]) -> Result<(), BackendError> {
        self.world().all_gather(buffer, pieces)
    }

    fn broadcast(&mut self, root: usize, buffer: &mut [u8]) -> Result<(), BackendError> {
        self.world().broadcast(root, buffer)
    }
}

/// Where ranks meet: as the launcher says, or as MPI tells them. Rank 0 goes on listening there, so
/// that they can meet again.
struct Venue {
    place: MeetingPlace,
    listener: Option<TcpListener>,
}

impl Venue {
    fn find(launch: &Launch, connection: &mut Link) -> Result<Venue, TrainError> {
        match (&launch.meeting, connection) {
            (Some(place), _) => {
                let listener = (launch.rank == 0).then(|| listen(place)).transpose();
                Ok(Venue { place: place.clone(), listener: listener.map_err(met)? })
            }
            (None, Link::Mpi(world) | Link::Nccl { guide: Some(world), .. }) => {
                let here = (launch.rank == 0).then(listen_anywhere).transpose().map_err(met)?;
                let port = here.as_ref().map_or(0, |(_, port)| *port);
                let said = format!("{}:{port}", ranks::facts::host_name());
                let said = String::from_utf8_lossy(world.share(0, said.as_bytes())?).into_owned();
                Ok(Venue { place: told(&said)?, listener: here.map(|(listener, _)| listener) })
            }
            (None, _) => {
                let what =
                    "the launcher does not say where rank 0 is; set FITGPT_MEETING=host:port";
                Err(BackendError::Refused { what: what.to_string() }.into())
            }
        }
    }

    fn meet(&self, launch: &Launch, facts: &Facts, payload: &[u8]) -> Result<Met, TrainError> {
        let meeting = Meeting::of(launch);
        let found = match &self.listener {
            Some(listener) => {
                let listener =
                    listener.try_clone().map_err(|error| TrainError::Threads { error })?;
                meeting.host(listener, facts, payload)
            }
            None => meeting.join(&self.place, facts),
        };
        found.map_err(met)
    }
}

/// Does something that waits for other ranks before anybody watches them. After `patience` prints
/// `late` and ends the process.
fn bounded<T>(
    patience: Duration,
    late: String,
    work: impl FnOnce() -> Result<T, TrainError>,
) -> Result<T, TrainError> {
    let (done, waiting) = sync_channel::<()>(0);
    let wait = move || {
        if waiting.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            leave_saying(&late, GONE)
        }
    };
    let thread = std::thread::Builder::new().name("fitgpt-patience".to_owned()).spawn(wait);
    let thread = thread.map_err(|error| TrainError::Threads { error })?;
    let result = work();
    drop(done);
    let _ = thread.join();
    result
}

/// Ends the process with an error that all ranks have.
fn leave_with(error: &TrainError) -> ! {
    leave_saying(&error.to_string(), i32::from(error.exit_code()))
}

/// Prints a line that all ranks print, and ends the process with them.
fn leave_saying(line: &str, code: i32) -> ! {
    screen::error_of_all(line);
    mpi::leave_together(code)
}

/// The place that rank 0 has told.
fn told(said: &str) -> Result<MeetingPlace, TrainError> {
    let parts = said.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let Some((host, port)) = parts else {
        let what = format!("rank 0 is at '{said}', which is no host with a port");
        return Err(BackendError::Internal { what }.into());
    };
    Ok(MeetingPlace { host: host.to_string(), port, ports: 1 })
}

/// What must be the same on all ranks: every key, and the data.
fn facts(setup: &Setup) -> Vec<(String, String)> {
    // A machine may have its own memory and devices, and a config may put the time into a name.
    let own = ["device", "vram", "ram", "gpus", "wandb_run_name"];
    let keys = setup.settings.iter().filter(|setting| !own.contains(&setting.key.name));
    let mut all: Vec<(String, String)> =
        keys.map(|setting| (setting.key.name.to_string(), setting.value.to_string())).collect();
    all.extend(setup.data_facts());
    all.extend(setup.resumed_facts());
    all
}

fn refused(error: LaunchError) -> TrainError {
    SpecError::Conflict { what: error.to_string() }.into()
}

fn met(error: MeetError) -> TrainError {
    BackendError::Refused { what: error.to_string() }.into()
}
