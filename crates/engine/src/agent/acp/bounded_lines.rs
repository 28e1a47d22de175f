//! Limit of the size of an agent's messages, which are lines. The protocol's library has none, so an
//! agent could fill the worker's memory with one endless line.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// Maximum size of a message, in bytes.
const MAX_MESSAGE_BYTES: usize = 32 * 1024 * 1024;

/// Stream that fails within a line that is too long.
#[derive(Debug)]
pub(super) struct BoundedLines<R> {
    inner: R,
    /// Size of the current line so far.
    line_bytes: usize,
    max_bytes: usize,
}

impl<R> BoundedLines<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, line_bytes: 0, max_bytes: MAX_MESSAGE_BYTES }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedLines<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        let new = &buffer.filled()[before..];
        this.line_bytes = match new.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => new.len() - end - 1,
            None => this.line_bytes + new.len(),
        };
        if this.line_bytes > this.max_bytes {
            // A reader must not be given bytes together with an error.
            buffer.set_filled(before);
            let error = format!("the agent sent a message larger than {} bytes", this.max_bytes);
            return Poll::Ready(Err(io::Error::other(error)));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    async fn read(text: String) -> io::Result<usize> {
        let inner = io::Cursor::new(text);
        let mut lines = BoundedLines { inner, line_bytes: 0, max_bytes: 10 };
        lines.read_to_end(&mut Vec::new()).await
    }

    #[tokio::test]
    async fn a_message_that_is_too_long_is_an_error_and_many_short_ones_are_not() {
        assert_eq!(read("123456789\n".repeat(100)).await.expect("short lines"), 1_000);
        assert_eq!(read("1234567890".to_owned()).await.expect("the longest line"), 10);
        let error = read("x".repeat(11)).await.expect_err("a long line");
        assert_eq!(error.to_string(), "the agent sent a message larger than 10 bytes");
    }
}
