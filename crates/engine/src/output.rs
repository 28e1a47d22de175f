//! The end of what a process writes, which is where it says what went wrong.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::task::JoinHandle;

/// How long the last words of a process that is gone may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Keeps the end of what a process writes.
pub(crate) struct Tail {
    kept: Arc<Mutex<VecDeque<u8>>>,
    reading: JoinHandle<()>,
}

impl Tail {
    /// Reads to the end, and keeps the last so many bytes.
    pub(crate) fn follow(mut from: impl AsyncRead + Send + Unpin + 'static, bytes: usize) -> Self {
        let kept = Arc::new(Mutex::new(VecDeque::new()));
        let keep = kept.clone();
        let reading = tokio::spawn(async move {
            let mut piece = [0; 8192];
            while let Ok(count @ 1..) = from.read(&mut piece).await {
                let mut kept = keep.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend(&piece[..count]);
                let over = kept.len().saturating_sub(bytes);
                kept.drain(..over);
            }
        });
        Self { kept, reading }
    }

    /// What was kept, once the process is gone.
    pub(crate) async fn text(mut self) -> String {
        if tokio::time::timeout(LAST_WORDS, &mut self.reading).await.is_err() {
            self.reading.abort();
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(kept.make_contiguous()).into_owned()
    }
}

/// The last so many bytes of a text, cut between characters.
pub(crate) fn last(text: &str, bytes: usize) -> &str {
    let from = text.len().saturating_sub(bytes);
    let from = (from..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(last("abc", 10), "abc");
        assert_eq!(last("aéb", 2), "b");
        assert_eq!(last("aéb", 3), "éb");
    }

    #[tokio::test]
    async fn only_the_end_is_kept() {
        let text = "x".repeat(20_000) + "the end";
        let tail = Tail::follow(std::io::Cursor::new(text), 10);
        assert_eq!(tail.text().await, "xxxthe end");
    }
}
