//! Tail of a process's output, which usually holds the error message.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::task::JoinHandle;

/// Time to drain the pipe of a process that has exited.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Reader that keeps the last bytes a process writes.
pub(crate) struct OutputTail {
    buffer: Arc<Mutex<VecDeque<u8>>>,
    reader_task: JoinHandle<()>,
}

impl OutputTail {
    /// Reads to the end of the stream in the background and keeps the last `bytes` bytes.
    pub(crate) fn follow(mut from: impl AsyncRead + Send + Unpin + 'static, bytes: usize) -> Self {
        let buffer = Arc::new(Mutex::new(VecDeque::new()));
        let keep = buffer.clone();
        let reader_task = tokio::spawn(async move {
            let mut piece = [0; 8192];
            while let Ok(count @ 1..) = from.read(&mut piece).await {
                let mut buffer = keep.lock().unwrap_or_else(PoisonError::into_inner);
                buffer.extend(&piece[..count]);
                let excess = buffer.len().saturating_sub(bytes);
                buffer.drain(..excess);
            }
        });
        Self { buffer, reader_task }
    }

    /// Returns the kept text. Call it after the process has exited.
    pub(crate) async fn text(mut self) -> String {
        if tokio::time::timeout(DRAIN_TIMEOUT, &mut self.reader_task).await.is_err() {
            self.reader_task.abort();
        }
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(buffer.make_contiguous()).into_owned()
    }
}

/// Returns at most the last `bytes` bytes of a text, cut at a character boundary.
pub(crate) fn last_bytes(text: &str, bytes: usize) -> &str {
    let from = text.len().saturating_sub(bytes);
    let from = (from..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_character_boundaries() {
        assert_eq!(last_bytes("abc", 10), "abc");
        assert_eq!(last_bytes("aéb", 2), "b");
        assert_eq!(last_bytes("aéb", 3), "éb");
    }

    #[tokio::test]
    async fn tail_keeps_only_the_last_bytes() {
        let text = "x".repeat(20_000) + "the end";
        let tail = OutputTail::follow(std::io::Cursor::new(text), 10);
        assert_eq!(tail.text().await, "xxxthe end");
    }
}
