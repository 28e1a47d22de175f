//! Log in the terminal UI: lines, selection, filters and the live tail.

use std::collections::BTreeSet;

use tamma_server::dto::{RunLine, RunLines};

/// Maximum number of lines that are kept. The server has the others.
const MAX_LINES: usize = 5_000;

/// Filters that `f` goes through: a name, and the kinds of lines.
pub(super) const FILTERS: [(&str, &str); 4] = [
    ("messages and actions", "said,tool,plan,progress,asked,document,refused,note"),
    ("tool calls", "tool"),
    ("messages", "said,document"),
    ("everything", ""),
];

/// Position from which lines are requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LogEdge {
    /// Last page of the log.
    Latest,
    /// Lines after a position.
    After(String),
    /// Page before a position.
    Before(String),
}

impl LogEdge {
    /// Returns the query parameter and its value.
    pub(super) fn parameter(&self) -> (&'static str, &str) {
        match self {
            Self::Latest => ("before", "end"),
            Self::After(position) => ("after", position),
            Self::Before(position) => ("before", position),
        }
    }
}

/// Log of the displayed task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LogState {
    pub(super) lines: Vec<RunLine>,
    /// Position before which there are more lines.
    pub(super) previous: Option<String>,
    pub(super) selected: usize,
    /// Lines that were expanded, by position.
    pub(super) expanded: BTreeSet<String>,
    /// Whether new lines are held back.
    pub(super) paused: bool,
    /// New lines that are held back.
    pub(super) held: Vec<RunLine>,
    /// Index into [`FILTERS`].
    pub(super) filter: usize,
    pub(super) search: String,
    /// Whether the first page has arrived.
    pub(super) is_loaded: bool,
}

impl LogState {
    /// Returns the kinds and the text that the server filters by.
    pub(super) fn server_filter(&self) -> (&'static str, String) {
        let kinds = FILTERS.get(self.filter).map_or("", |(_, kinds)| *kinds);
        (kinds, self.search.clone())
    }

    /// Returns whether the last line is selected, so that the log follows new lines.
    pub(super) fn follows(&self) -> bool {
        self.selected + 1 >= self.lines.len()
    }

    /// Returns from where new lines are requested.
    pub(super) fn newest_edge(&self) -> LogEdge {
        let newest = self.held.last().or(self.lines.last());
        match newest.filter(|_| self.is_loaded) {
            Some(line) => LogEdge::After(line.position.clone()),
            None => LogEdge::Latest,
        }
    }

    /// Adds a page of lines.
    pub(super) fn add(&mut self, edge: &LogEdge, page: RunLines) {
        match edge {
            LogEdge::Latest => {
                self.previous = page.previous;
                self.lines = page.lines;
                self.select_last();
                self.is_loaded = true;
            }
            LogEdge::Before(_) => {
                self.previous = page.previous;
                self.selected += page.lines.len();
                self.lines.splice(..0, page.lines);
            }
            // An answer that is late repeats lines.
            LogEdge::After(_) if self.newest_edge() != *edge => {}
            LogEdge::After(_) if self.paused => self.held.extend(page.lines),
            LogEdge::After(_) => self.append(page.lines),
        }
    }

    fn append(&mut self, lines: Vec<RunLine>) {
        let follows = self.follows();
        self.lines.extend(lines);
        let excess = self.lines.len().saturating_sub(MAX_LINES);
        if excess > 0 {
            self.lines.drain(..excess);
            self.previous = self.lines.first().map(|line| line.position.clone());
            self.selected = self.selected.saturating_sub(excess);
        }
        if follows {
            self.select_last();
        }
    }

    /// Holds new lines back, or shows those that were held back.
    pub(super) fn toggle_pause(&mut self) {
        self.paused = !self.paused;
        if !self.paused {
            let held = std::mem::take(&mut self.held);
            self.append(held);
        }
    }

    /// Expands the selected line, or collapses it.
    pub(super) fn toggle_selected(&mut self) {
        if let Some(line) = self.lines.get(self.selected)
            && !self.expanded.remove(&line.position)
        {
            self.expanded.insert(line.position.clone());
        }
    }

    /// Selects the last line.
    pub(super) fn select_last(&mut self) {
        self.selected = self.lines.len().saturating_sub(1);
    }

    /// Moves the selection.
    pub(super) fn move_by(&mut self, rows: isize) {
        let last = self.lines.len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(rows).min(last);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(numbers: std::ops::Range<u32>) -> Vec<RunLine> {
        numbers
            .map(|number| {
                serde_json::from_value(json!({
                    "place": format!("4.1.{number}"), "run": "4", "at": "2026-11-15T10:20:30Z",
                    "kind": "said", "text": number.to_string(),
                }))
                .expect("a line")
            })
            .collect()
    }

    fn page(numbers: std::ops::Range<u32>, previous: Option<&str>) -> RunLines {
        RunLines { lines: lines(numbers), next: None, previous: previous.map(str::to_owned) }
    }

    #[test]
    fn the_log_follows_its_end_until_somebody_scrolls_or_pauses() {
        let mut log = LogState::default();
        assert_eq!(log.newest_edge(), LogEdge::Latest);
        log.add(&LogEdge::Latest, page(3..6, Some("4.1.3")));
        assert_eq!((log.selected, log.follows()), (2, true));
        let after = LogEdge::After("4.1.5".to_owned());
        assert_eq!(log.newest_edge(), after);
        log.add(&after, page(6..8, None));
        assert_eq!((log.lines.len(), log.selected), (5, 4));
        log.add(&after, page(6..8, None));
        assert_eq!(log.lines.len(), 5, "a late answer changes nothing");
        log.move_by(-2);
        log.add(&log.newest_edge(), page(8..9, None));
        assert_eq!((log.lines.len(), log.selected), (6, 2));
        // Earlier lines keep the selected one selected.
        log.add(&LogEdge::Before("4.1.3".to_owned()), page(1..3, None));
        assert_eq!((log.lines[log.selected].text.as_str(), log.previous.as_deref()), ("5", None));
        log.select_last();
        log.toggle_pause();
        log.add(&log.newest_edge(), page(9..11, None));
        assert_eq!((log.lines.len(), log.held.len()), (8, 2));
        assert_eq!(log.newest_edge(), LogEdge::After("4.1.10".to_owned()));
        log.toggle_pause();
        assert_eq!((log.lines.len(), log.held.len(), log.follows()), (10, 0, true));
    }

    #[test]
    fn a_long_log_keeps_its_newest_lines() {
        let mut log = LogState::default();
        log.add(&LogEdge::Latest, page(1..2, None));
        log.add(&log.newest_edge(), page(2..6_002, None));
        assert_eq!(log.lines.len(), MAX_LINES);
        assert_eq!(log.lines.last().map(|line| line.text.as_str()), Some("6001"));
        assert_eq!(log.previous.as_deref(), Some("4.1.1002"));
        log.toggle_selected();
        assert_eq!(log.expanded.len(), 1);
        log.toggle_selected();
        assert!(log.expanded.is_empty());
    }
}
