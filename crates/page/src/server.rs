//! The server: one thread, a bounded number of connections, and a deadline for each request.

use crate::answers::{Answers, Control};
use crate::guard::{self, Access};
use crate::live;
use crate::platform::lowest_priority;
use crate::registry::{Registry, unix_time};
use crate::routes::{self, State};
use crate::socket::{Clock, Socket};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// The port if none is given; if it is taken, the next ones are tried.
const PORT: u16 = 7070;
const TRIED: u16 = 20;

/// Connections at a time. One more is closed at once.
const MOST_CONNECTIONS: usize = 256;

/// How long a client may take to send a request's head, and to keep a connection idle.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// Bounds of a request's head.
const MOST_HEAD: usize = 16 << 10;
const MOST_HEADERS: usize = 64;

/// How long the last news get to reach clients.
const GOODBYE: Duration = Duration::from_millis(900);

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The port is taken.
    #[error("cannot serve the page on {host} port {port}: {error}; give another --port")]
    Bind {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// What the system says.
        error: std::io::Error,
    },
    /// The host is not an address of this machine.
    #[error("--host '{host}' is not an address: {error}; give one of this machine, e.g. 0.0.0.0")]
    Host {
        /// The host.
        host: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// Anything else.
    #[error("cannot start the page: {0}")]
    Start(#[from] std::io::Error),
}

/// What is served, and where.
pub struct Settings {
    /// The host; `localhost` for this machine only.
    pub host: String,
    /// The port; none for a free one.
    pub port: Option<u16>,
    /// The runs.
    pub registry: Arc<Registry>,
    /// The rest of the program.
    pub answers: Arc<dyn Answers>,
    /// What may be changed.
    pub control: Option<Control>,
    /// Whether a run trains in this process: then the page's work has the lowest priority.
    pub is_polite: bool,
}

/// A page that is being served.
pub struct Page {
    /// What to open, with the token if there is one.
    pub url: String,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Page {
    /// Waits until clients have the last news, if there are any.
    pub fn say_goodbye(&self) {
        if self.state.live.clients() > 0 {
            std::thread::sleep(GOODBYE);
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the server was printed; the run's own result counts.
            let _ = thread.join();
        }
    }
}

/// Binds the addresses and serves on a thread of its own.
pub fn start(settings: Settings) -> Result<Page, PageError> {
    let Settings { host, port, registry, answers, control, is_polite } = settings;
    let (listeners, port) = match port {
        Some(port) => bind(&host, port)?,
        None => first_free(&host)?,
    };
    let access = Access::new(&host, port)?;
    let shown = if guard::loopback(&host) { "localhost" } else { host.as_str() };
    let shown = if shown.contains(':') { format!("[{shown}]") } else { shown.to_string() };
    let token = access.token().map(|token| format!("?token={token}")).unwrap_or_default();
    let url = format!("http://{shown}:{port}/{token}");
    let instance = format!("{:x}-{:x}", std::process::id(), (unix_time() * 1e3) as u64);
    let state = Arc::new(State::new(Arc::clone(&registry), answers, control, access, instance));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(4)
        .on_thread_start(move || {
            if is_polite {
                lowest_priority()
            }
        })
        .build()?;
    let (stop, stopped) = oneshot::channel();
    let served = Arc::clone(&state);
    let follow = std::thread::Builder::new().name("page logs".to_string());
    follow.spawn(move || {
        if is_polite {
            lowest_priority();
        }
        registry.follow();
    })?;
    let thread = std::thread::Builder::new().name("page".to_string()).spawn(move || {
        runtime.block_on(serve(served, listeners, stopped));
        runtime.shutdown_background();
    })?;
    Ok(Page { url, state, stop: Some(stop), thread: Some(thread) })
}

/// The listeners of a host. This machine has two loopback addresses.
fn bind(host: &str, port: u16) -> Result<(Vec<TcpListener>, u16), PageError> {
    let failed = |error| PageError::Bind { host: host.to_string(), port, error };
    if guard::loopback(host) {
        let first = TcpListener::bind(("127.0.0.1", port)).map_err(failed)?;
        let port = first.local_addr()?.port();
        // A machine may lack IPv6. If another program has the port there, its page would open.
        return match TcpListener::bind(("::1", port)) {
            Ok(second) => Ok((vec![first, second], port)),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Err(failed(error)),
            Err(_) => Ok((vec![first], port)),
        };
    }
    let unknown = |error| PageError::Host { host: host.to_string(), error };
    let plain = host.trim_start_matches('[').trim_end_matches(']');
    let all: Vec<SocketAddr> = (plain, port).to_socket_addrs().map_err(unknown)?.collect();
    let listener = TcpListener::bind(&all[..]).map_err(failed)?;
    let port = listener.local_addr()?.port();
    Ok((vec![listener], port))
}

fn first_free(host: &str) -> Result<(Vec<TcpListener>, u16), PageError> {
    let mut tried = bind(host, PORT);
    for port in PORT + 1..PORT + TRIED {
        match &tried {
            Err(PageError::Bind { error, .. }) if error.kind() == std::io::ErrorKind::AddrInUse => {
                tried = bind(host, port);
            }
            _ => break,
        }
    }
    tried
}

async fn serve(state: Arc<State>, listeners: Vec<TcpListener>, stopped: oneshot::Receiver<()>) {
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let (registry, answers) = (Arc::clone(&state.registry), Arc::clone(&state.answers));
    tokio::spawn(live::run(state.live.clone(), registry, answers));
    for listener in listeners {
        let listener = listener
            .set_nonblocking(true)
            .and_then(|()| tokio::net::TcpListener::from_std(listener));
        if let Ok(listener) = listener {
            tokio::spawn(accept(listener, Arc::clone(&state), Arc::clone(&room)));
        }
    }
    // The sender is never used, only dropped.
    let _ = stopped.await;
}

async fn accept(listener: tokio::net::TcpListener, state: Arc<State>, room: Arc<Semaphore>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Too many files are open: let others close theirs.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
            continue; // closed at once
        };
        let _ = stream.set_nodelay(true);
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let _place = place;
            let service = service_fn(move |request| {
                let state = Arc::clone(&state);
                async move { Ok::<_, Infallible>(routes::answer(state, request).await) }
            });
            let connection = http1::Builder::new()
                .timer(Clock)
                .header_read_timeout(HEAD_TIME)
                .max_buf_size(MOST_HEAD)
                .max_headers(MOST_HEADERS)
                .serve_connection(Socket::new(stream), service);
            // A client that breaks off is no news.
            let _ = connection.await;
        });
    }
}
