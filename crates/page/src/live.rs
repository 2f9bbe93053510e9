//! The live stream: what changed since the last tick, made once and sent to all clients as
//! server-sent events. A client that lags gets everything again instead of a backlog.

use crate::answers::{Answers, Hardware};
use crate::follow::locked;
use crate::registry::{Registry, Shown};
use hyper::body::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::mpsc;

/// How often news are sent.
const TICK: Duration = Duration::from_millis(300);

/// A reading of the GPU each so many ticks.
const HARDWARE_EVERY: u32 = 7;

/// Sent while there is nothing to say, so that a broken connection is noticed.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Ticks that wait for a client.
const BACKLOG: usize = 16;

/// Parts that wait in a client's body.
const PARTS: usize = 4;

/// Where clients subscribe.
#[derive(Clone, Debug)]
pub struct Live(broadcast::Sender<Bytes>);

impl Live {
    /// A stream without clients.
    pub fn new() -> Live {
        Live(broadcast::Sender::new(BACKLOG))
    }

    /// Number of clients.
    pub fn clients(&self) -> usize {
        self.0.receiver_count()
    }

    /// A client's body. `guest` is kept until the client leaves.
    pub fn subscribe<G: Send + 'static>(
        &self,
        hello: impl Fn() -> Value + Send + 'static,
        guest: G,
    ) -> mpsc::Receiver<Bytes> {
        let mut news = self.0.subscribe();
        let (parts, body) = mpsc::channel(PARTS);
        tokio::spawn(async move {
            let _guest = guest;
            let mut next = event("hello", &hello());
            while parts.send(next).await.is_ok() {
                // A client that has left is noticed at the next part: the heartbeat at the latest.
                next = match tokio::time::timeout(HEARTBEAT, news.recv()).await {
                    Ok(Ok(part)) => part,
                    Ok(Err(RecvError::Lagged(_))) => event("hello", &hello()),
                    Ok(Err(RecvError::Closed)) => break,
                    Err(_) => Bytes::from_static(b": still here\n\n"),
                };
            }
        });
        body
    }
}

/// One server-sent event. JSON has no line ends, so one line of data is enough.
fn event(name: &str, data: &Value) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

/// What all clients know about a run.
#[derive(Clone, Copy, Default)]
struct Known {
    version: u64,
    news: u64,
}

/// Sends news for ever.
pub async fn run(live: Live, registry: Arc<Registry>, answers: Arc<dyn Answers>) {
    let mut known: Vec<Known> = Vec::new();
    let mut ticks = 0u32;
    loop {
        tokio::time::sleep(TICK).await;
        ticks = ticks.wrapping_add(1);
        let all = registry.all();
        if ticks.is_multiple_of(HARDWARE_EVERY) && all.iter().any(|shown| shown.is_own) {
            read_hardware(&answers, &all).await;
        }
        let has_clients = live.clients() > 0;
        if all.len() > known.len() {
            known.resize(all.len(), Known::default());
        }
        for (shown, known) in all.iter().zip(&mut known) {
            if let Some(message) = changed(shown, known, has_clients) {
                // Nobody listens any more: the next client begins with everything.
                let _ = live.0.send(event("run", &message));
            }
        }
    }
}

/// What is new about a run; none if nothing is or nobody listens.
fn changed(shown: &Shown, known: &mut Known, has_clients: bool) -> Option<Value> {
    let run = locked(&shown.run);
    let before = std::mem::replace(known, Known { version: run.version, news: run.newest_news() });
    if before.version == run.version || !has_clients {
        return None;
    }
    let news = run.news_since(before.news);
    let news = news.map(|(_, news)| news.into_iter().cloned().collect::<Vec<Value>>());
    drop(run);
    Some(json!({ "id": shown.id, "from": before.news, "to": known.news, "news": news,
                 "summary": shown.summary() }))
}

async fn read_hardware(answers: &Arc<dyn Answers>, all: &[Arc<Shown>]) {
    let answers = Arc::clone(answers);
    let read = tokio::task::spawn_blocking(move || answers.hardware()).await;
    let Ok(Some(Hardware { busy, clock, temperature, power })) = read else { return };
    let values = [busy, clock, temperature, power].map(|value| value.unwrap_or(f64::NAN));
    for shown in all.iter().filter(|shown| shown.is_own) {
        locked(&shown.run).read_hardware(values);
    }
}
