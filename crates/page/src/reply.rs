//! Answers and bodies. A body is a text that is there, or a stream that another task fills.

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc::Receiver;

/// The body of an answer.
pub enum Content {
    /// All of it.
    Whole(Option<Bytes>),
    /// Parts as they come; it ends when the sender is gone.
    Stream(Receiver<Bytes>),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Content::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Stream(parts) => {
                parts.poll_recv(context).map(|part| part.map(|part| Ok(Frame::data(part))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Content::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Content::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Content::Stream(_) => SizeHint::default(),
        }
    }
}

/// An answer.
pub type Reply = Response<Content>;

/// An answer of this type.
pub fn of(status: StatusCode, kind: &'static str, content: Content) -> Reply {
    let mut reply = Response::new(content);
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}

/// A JSON document.
pub fn document(value: &Value) -> Reply {
    with_status(StatusCode::OK, value)
}

fn with_status(status: StatusCode, value: &Value) -> Reply {
    of(status, "application/json", Content::Whole(Some(value.to_string().into())))
}

/// A refusal with its reason.
pub fn refusal(status: StatusCode, what: &str) -> Reply {
    with_status(status, &json!({ "error": what }))
}

/// Reads a request's body of at most `most` bytes; none if it is longer or breaks off.
pub async fn body(mut incoming: Incoming, most: usize) -> Option<Vec<u8>> {
    if incoming.size_hint().lower() > most as u64 {
        return None;
    }
    let mut all = Vec::new();
    loop {
        let frame = std::future::poll_fn(|context| Pin::new(&mut incoming).poll_frame(context));
        match frame.await {
            None => return Some(all),
            Some(Err(_)) => return None,
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { continue };
                if all.len() + data.len() > most {
                    return None;
                }
                all.extend_from_slice(&data);
            }
        }
    }
}
