//! The addresses of the server. Everything that the page shows has a JSON document under `/api/`;
//! `docs/page-api.md` describes them. A run is named by its number, a file by its entry in a table:
//! no part of an address reaches the file system.

use crate::answers::{Answers, Control, Refused};
use crate::assets;
use crate::follow::locked;
use crate::guard::{self, Access};
use crate::live::Live;
use crate::points::{Axis, Range};
use crate::query;
use crate::registry::{Registry, Shown};
use crate::reply::{self, Content, Reply};
use crate::run::{HARDWARE, METRICS};
use crate::sampler;
use hyper::body::Incoming;
use hyper::header::{HeaderValue, LOCATION};
use hyper::{Method, Request, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The schema of every document.
pub const SCHEMA: &str = "fitgpt.page/1";

/// Bounds of requests: bytes of a log and of other bodies, and how long a body may take.
const MOST_LOG: usize = 4 << 20;
const MOST_BODY: usize = 64 << 10;
const BODY_TIME: Duration = Duration::from_secs(20);

/// Plans and diagnoses at a time, and how many may wait.
const WORKERS: usize = 2;
const WAITING: usize = 32;

/// Clients of the live stream.
const MOST_CLIENTS: usize = 32;

/// How long a sample waits for the one before it, which a client has just left.
const SAMPLE_WAIT: Duration = Duration::from_secs(3);

/// Buckets of a view.
const MOST_BUCKETS: usize = 4000;
const USUAL_BUCKETS: usize = 1000;

/// What the handlers share.
pub struct State {
    /// The runs.
    pub registry: Arc<Registry>,
    /// The rest of the program.
    pub answers: Arc<dyn Answers>,
    /// What may be changed; none if nothing may.
    pub control: Option<Control>,
    /// Who may ask.
    pub access: Access,
    /// The stream of news.
    pub live: Live,
    /// Differs from start to start.
    pub instance: String,
    workers: Semaphore,
    waiting: Semaphore,
    clients: Arc<Semaphore>,
    sampling: Arc<Semaphore>,
}

impl State {
    /// A server's state.
    pub fn new(
        registry: Arc<Registry>,
        answers: Arc<dyn Answers>,
        control: Option<Control>,
        access: Access,
        instance: String,
    ) -> State {
        State {
            registry,
            answers,
            control,
            access,
            live: Live::new(),
            instance,
            workers: Semaphore::new(WORKERS),
            waiting: Semaphore::new(WAITING),
            clients: Arc::new(Semaphore::new(MOST_CLIENTS)),
            sampling: Arc::new(Semaphore::new(1)),
        }
    }

    /// Everything at a glance.
    fn index(&self) -> Value {
        let runs: Vec<Value> = self.registry.all().iter().map(|shown| shown.summary()).collect();
        json!({ "schema": SCHEMA, "instance": self.instance,
                "control": self.control.is_some(), "runs": runs })
    }

    /// Asks the rest of the program, on a thread of its own.
    async fn ask(
        self: &Arc<State>,
        question: impl FnOnce(&dyn Answers) -> Result<Value, Refused> + Send + 'static,
    ) -> Reply {
        let busy = || reply::refusal(StatusCode::SERVICE_UNAVAILABLE, "busy: try again");
        let Ok(_place) = self.waiting.try_acquire() else { return busy() };
        let Ok(_worker) = self.workers.acquire().await else { return busy() };
        let answers = Arc::clone(&self.answers);
        match tokio::task::spawn_blocking(move || question(&*answers)).await {
            Ok(Ok(document)) => reply::document(&document),
            Ok(Err(refused)) => reply::refusal(StatusCode::UNPROCESSABLE_ENTITY, &refused.0),
            Err(_) => {
                let what = "a bug in fitgpt: the terminal has its message";
                reply::refusal(StatusCode::INTERNAL_SERVER_ERROR, what)
            }
        }
    }
}

/// Answers a request.
pub async fn answer(state: Arc<State>, request: Request<Incoming>) -> Reply {
    let mut reply = checked(&state, request).await;
    guard::protect(reply.headers_mut());
    reply
}

async fn checked(state: &Arc<State>, request: Request<Incoming>) -> Reply {
    if request.method() == Method::GET
        && let Some(cookie) = state.access.first_visit(request.uri())
    {
        let mut reply = reply::refusal(StatusCode::SEE_OTHER, "open /");
        reply.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
        guard::set_cookie(reply.headers_mut(), cookie);
        return reply;
    }
    if let Err((status, what)) = state.access.check(request.method(), request.headers()) {
        return reply::refusal(status, what);
    }
    let path = request.uri().path().to_string();
    let is_post = request.method() == Method::POST;
    if let Some(asset) = assets::find(&path).filter(|_| !is_post) {
        return reply::of(StatusCode::OK, asset.kind, Content::Whole(Some(asset.content.into())));
    }
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let query = query::pairs(request.uri().query());
    match (is_post, parts.as_slice()) {
        (false, ["api", rest @ ..]) => read(state, rest, query).await,
        (true, ["api", rest @ ..]) => {
            let most = if rest == ["doctor"] { MOST_LOG } else { MOST_BODY };
            let body = timeout(BODY_TIME, reply::body(request.into_body(), most)).await;
            let Ok(Some(body)) = body else {
                let what = format!("a body of at most {most} bytes, within 20 seconds");
                return reply::refusal(StatusCode::PAYLOAD_TOO_LARGE, &what);
            };
            match serde_json::from_slice(&body) {
                Ok(document) => change(state, rest, document).await,
                Err(_) => reply::refusal(StatusCode::BAD_REQUEST, "the body is not JSON"),
            }
        }
        _ => nothing_here(),
    }
}

fn nothing_here() -> Reply {
    reply::refusal(StatusCode::NOT_FOUND, "there is nothing at this address")
}

/// GET: nothing is changed.
async fn read(state: &Arc<State>, parts: &[&str], query: Vec<(String, String)>) -> Reply {
    match parts {
        ["runs"] => reply::document(&state.index()),
        ["about"] => state.ask(|answers| Ok(answers.about())).await,
        ["events"] => events(state),
        ["plan"] => state.ask(move |answers| answers.plan(&query)).await,
        ["plan", "largest"] => state.ask(move |answers| answers.largest(&query)).await,
        ["plan", "arena"] => state.ask(move |answers| answers.arena(&query)).await,
        ["runs", id, rest @ ..] => {
            let found = id.parse().ok().and_then(|id| state.registry.get(id));
            match (found, rest) {
                (Some(shown), []) => reply::document(&whole(&shown)),
                (Some(shown), ["series"]) => reply::document(&series(&shown, &query)),
                (Some(shown), ["arena"]) => {
                    let start = locked(&shown.run).start.clone();
                    let Some(start) = start else {
                        let what = "this log does not say how the run was planned";
                        return reply::refusal(StatusCode::UNPROCESSABLE_ENTITY, what);
                    };
                    let is_own = shown.is_own;
                    state.ask(move |answers| answers.arena_of_run(&start, is_own, &query)).await
                }
                _ => nothing_here(),
            }
        }
        ["doctor" | "sample" | "control"] => {
            reply::refusal(StatusCode::METHOD_NOT_ALLOWED, "POST this")
        }
        _ => nothing_here(),
    }
}

/// POST: asks for work, or changes the run.
async fn change(state: &Arc<State>, parts: &[&str], document: Value) -> Reply {
    let text = |name: &str| document.get(name).and_then(Value::as_str).map(str::to_string);
    match parts {
        ["doctor"] => {
            let (log, language) = (text("text").unwrap_or_default(), text("language"));
            let rows = ["gpu", "vram", "used"].into_iter();
            let query: Vec<(String, String)> =
                rows.filter_map(|name| Some((name.to_string(), text(name)?))).collect();
            state.ask(move |answers| answers.diagnose(&log, language.as_deref(), &query)).await
        }
        ["sample"] => sample(state, &document).await,
        ["control"] => control(state, text("action").as_deref()),
        _ => nothing_here(),
    }
}

fn control(state: &State, action: Option<&str>) -> Reply {
    let Some(control) = &state.control else {
        let what = "this page only reads; `fitgpt train --ui` can save and stop its run";
        return reply::refusal(StatusCode::FORBIDDEN, what);
    };
    match action {
        Some("save") => control.save.store(true, Ordering::Relaxed),
        Some("stop") => control.stop.store(true, Ordering::Relaxed),
        _ => return reply::refusal(StatusCode::UNPROCESSABLE_ENTITY, "action: save or stop"),
    }
    reply::document(&json!({ "schema": SCHEMA, "asked": action }))
}

async fn sample(state: &Arc<State>, document: &Value) -> Reply {
    let refuse = |what: &str| reply::refusal(StatusCode::UNPROCESSABLE_ENTITY, what);
    let id = document.get("run").and_then(Value::as_u64).and_then(|id| usize::try_from(id).ok());
    let which = document.get("checkpoint").and_then(Value::as_str).unwrap_or("last");
    let Some(shown) = id.and_then(|id| state.registry.get(id)) else {
        return refuse("run: the number of a run");
    };
    let Some(path) = shown.checkpoint(which) else {
        return refuse("this run has no such checkpoint yet");
    };
    let wish = match sampler::wish(document) {
        Ok(wish) => wish,
        Err(refused) => return refuse(&refused.0),
    };
    let turn = timeout(SAMPLE_WAIT, Arc::clone(&state.sampling).acquire_owned()).await;
    let Ok(Ok(turn)) = turn else {
        let what = "another text is being generated: stop it or wait";
        return reply::refusal(StatusCode::TOO_MANY_REQUESTS, what);
    };
    let started = state.answers.sampler(&path);
    match started.and_then(|command| sampler::start(command, &wish, turn)) {
        Ok(body) => reply::of(StatusCode::OK, "application/x-ndjson", Content::Stream(body)),
        Err(refused) => refuse(&refused.0),
    }
}

/// The live stream.
fn events(state: &Arc<State>) -> Reply {
    let Ok(guest) = Arc::clone(&state.clients).try_acquire_owned() else {
        let what = "too many pages are open: close one";
        return reply::refusal(StatusCode::SERVICE_UNAVAILABLE, what);
    };
    let shared = Arc::clone(state);
    let body = state.live.subscribe(move || shared.index(), guest);
    reply::of(StatusCode::OK, "text/event-stream", Content::Stream(body))
}

/// All about a run but its series.
fn whole(shown: &Shown) -> Value {
    let summary = shown.summary();
    let run = locked(&shown.run);
    let start = run.start.as_deref();
    let samples = run.samples.iter().map(|(iter, text)| json!({ "iter": iter, "text": text }));
    json!({
        "schema": SCHEMA,
        "summary": summary,
        "config": start.map(|start| &start.config),
        "plan": start.map(|start| &start.plan),
        "vocab_size": start.map(|start| start.vocab_size),
        "tokens_per_iteration": start.and_then(|start| start.tokens_per_iteration),
        "evals": run.evals.iter().map(|eval| eval.json()).collect::<Vec<_>>(),
        "marks": run.marks.iter().map(|mark| mark.json()).collect::<Vec<_>>(),
        "samples": samples.collect::<Vec<_>>(),
    })
}

/// The values of a part of the run.
fn series(shown: &Shown, query: &[(String, String)]) -> Value {
    let number = |name: &str| query::get(query, name).and_then(|text| text.parse::<f64>().ok());
    let axis = query::get(query, "axis").and_then(Axis::of).unwrap_or(Axis::Iter);
    let buckets = number("buckets").map_or(USUAL_BUCKETS, |count| count as usize);
    let range = Range {
        axis,
        from: number("from").unwrap_or(f64::NEG_INFINITY),
        to: number("to").unwrap_or(f64::INFINITY),
        buckets: buckets.clamp(2, MOST_BUCKETS),
    };
    let run = locked(&shown.run);
    json!({
        "schema": SCHEMA,
        "id": shown.id,
        "generation": run.generation,
        "news": run.newest_news(),
        "train": run.points.columns(&range, &METRICS),
        "hardware": run.hardware.columns(&range, &HARDWARE),
    })
}
