//! A connection as hyper needs it, which gives up on a client that does not read, and the clock
//! for those that do not write.

use hyper::rt::{Read, ReadBufCursor, Sleep, Timer, Write};
use std::io::{Error, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How long a client may leave its answer unread.
const STALL: Duration = Duration::from_secs(20);

/// Bytes that are read at a time.
const CHUNK: usize = 8192;

/// A connection.
pub struct Socket {
    stream: TcpStream,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Socket {
    /// Wraps a connection.
    pub fn new(stream: TcpStream) -> Socket {
        Socket { stream, stalled: None }
    }

    /// Ends a write that has waited for too long.
    fn judged<T>(
        &mut self,
        poll: Poll<std::io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<T>> {
        if poll.is_ready() {
            self.stalled = None;
            return poll;
        }
        let clock = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(STALL)));
        match clock.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(Error::from(ErrorKind::TimedOut))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        let mut chunk = [0; CHUNK];
        let room = into.remaining().min(CHUNK);
        let mut buffer = ReadBuf::new(&mut chunk[..room]);
        let read = Pin::new(&mut self.stream).poll_read(context, &mut buffer);
        read.map_ok(|()| into.put_slice(buffer.filled()))
    }
}

impl Write for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judged(written, context)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.judged(flushed, context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judged(shut, context)
    }
}

/// Tokio's clock for hyper.
#[derive(Clone, Copy, Debug)]
pub struct Clock;

impl Timer for Clock {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(Nap(Box::pin(tokio::time::sleep(duration))))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Nap(Box::pin(tokio::time::sleep_until(deadline.into()))))
    }
}

struct Nap(Pin<Box<tokio::time::Sleep>>);

impl Future for Nap {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}

impl Sleep for Nap {}
