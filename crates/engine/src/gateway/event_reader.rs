//! Incremental reader of server-sent events with bounded memory.

use tokio_util::bytes::BytesMut;
use tokio_util::codec::{Decoder as _, LinesCodec};

/// Maximum size of an event and of a line in it. The last event of a stream can contain the whole
/// response.
const MAX_EVENT_BYTES: usize = 32 * 1024 * 1024;

/// Reader of the events in a stream that arrives in chunks. Each byte is searched once. An event
/// that is too long or not UTF-8 is dropped.
pub(super) struct EventReader {
    lines: LinesCodec,
    /// Received bytes without a line break.
    buffer: BytesMut,
    /// Data of the unfinished event.
    data: String,
    max_bytes: usize,
    is_dropped: bool,
}

impl EventReader {
    pub(super) fn new() -> Self {
        Self::with_limit(MAX_EVENT_BYTES)
    }

    fn with_limit(max_bytes: usize) -> Self {
        Self {
            lines: LinesCodec::new_with_max_length(max_bytes),
            buffer: BytesMut::new(),
            data: String::new(),
            max_bytes,
            is_dropped: false,
        }
    }

    /// Reads a chunk, and passes the data of each event that it completes to `on_event`.
    pub(super) fn read_chunk(&mut self, chunk: &[u8], mut on_event: impl FnMut(&str)) {
        // Bounds the buffer, even for a chunk of any size.
        for piece in chunk.chunks(self.max_bytes.max(1)) {
            self.buffer.extend_from_slice(piece);
            loop {
                match self.lines.decode(&mut self.buffer) {
                    Ok(Some(line)) => self.read_line(&line, &mut on_event),
                    Ok(None) => break,
                    Err(_) => self.drop_event(),
                }
            }
        }
    }

    fn read_line(&mut self, line: &str, on_event: &mut impl FnMut(&str)) {
        if line.is_empty() {
            if !self.is_dropped && !self.data.is_empty() {
                on_event(&self.data);
            }
            self.data.clear();
            self.is_dropped = false;
            return;
        }
        let line = line.strip_prefix('\u{feff}').unwrap_or(line);
        let Some(value) = line.strip_prefix("data:") else { return };
        let value = value.strip_prefix(' ').unwrap_or(value);
        if self.is_dropped || self.data.len() + value.len() >= self.max_bytes {
            return self.drop_event();
        }
        if !self.data.is_empty() {
            self.data.push('\n');
        }
        self.data.push_str(value);
    }

    fn drop_event(&mut self) {
        self.is_dropped = true;
        self.data = String::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(reader: &mut EventReader, chunk: &[u8]) -> Vec<String> {
        let mut events = Vec::new();
        reader.read_chunk(chunk, |data| events.push(data.to_owned()));
        events
    }

    #[test]
    fn events_are_the_same_for_every_size_of_chunks() {
        let text = "\u{feff}data: a\n\n: comment\nevent: x\ndata:b\r\ndata: c\r\n\r\n\n\n\
                    id: 1\n\ndata: ü\n\ndata: unfinished";
        for size in [1, 2, 3, 7, text.len()] {
            let mut reader = EventReader::new();
            let all: Vec<String> =
                text.as_bytes().chunks(size).flat_map(|it| events(&mut reader, it)).collect();
            assert_eq!(all, ["a", "b\nc", "ü"], "chunks of {size}");
        }
    }

    #[test]
    fn endless_line_takes_bounded_memory() {
        let mut reader = EventReader::with_limit(1024);
        assert_eq!(events(&mut reader, b"data: "), [""; 0]);
        for _ in 0..10_000 {
            assert_eq!(events(&mut reader, &[b'x'; 512]), [""; 0]);
            assert!(reader.buffer.len() <= 2048 && reader.data.capacity() <= 1024);
        }
        assert!(reader.buffer.capacity() <= 16 * 1024, "{}", reader.buffer.capacity());
        // The rest of the event is dropped, and the next one is read.
        assert_eq!(events(&mut reader, b"\ndata: y\n\ndata: z\n\n"), ["z"]);
        let mut reader = EventReader::with_limit(1024);
        let chunk = [&vec![b'x'; 1024 * 1024][..], b"\n\ndata: z\n\n"].concat();
        assert_eq!(events(&mut reader, &chunk), ["z"]);
        assert!(reader.buffer.capacity() <= 16 * 1024, "{}", reader.buffer.capacity());
    }

    #[test]
    fn event_of_endless_lines_takes_bounded_memory() {
        let mut reader = EventReader::with_limit(1024);
        for _ in 0..10_000 {
            assert_eq!(events(&mut reader, b"data: some text\n"), [""; 0]);
            assert!(reader.data.capacity() <= 2048);
        }
        assert_eq!(events(&mut reader, b"\ndata: z\n\n"), ["z"]);
    }

    #[test]
    fn event_that_is_not_utf_8_is_dropped() {
        let mut reader = EventReader::new();
        let text = b"data: a\ndata: \xff\n\ndata: b\n\n";
        let all: Vec<String> = text.chunks(1).flat_map(|byte| events(&mut reader, byte)).collect();
        assert_eq!(all, ["b"]);
    }
}
