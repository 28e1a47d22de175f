//! Terminal UI of `tamma top`: board, inbox, task, log and decisions.
//!
//! `state` changes only by messages and returns effects; `view` renders it. Both are pure. This
//! module runs the effects as background tasks, so that the screen never waits for the network.

mod effects;
mod log_state;
mod state;
mod terminal_guard;
mod text;
mod view;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use crossterm::event::{Event, EventStream, KeyEventKind};
use futures_util::StreamExt as _;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use self::effects::EffectRunner;
use self::state::{TopMessage, TopState};
use self::terminal_guard::{StopSignals, TerminalGuard};
use crate::client::Client;
use crate::style;

/// Interval at which the displayed data is loaded again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the terminal UI until the person quits or a signal arrives. Actions are sent as `by`.
pub(crate) async fn run(client: Client, by: String) -> Result<ExitCode> {
    let mut signals = StopSignals::new()?;
    let mut state =
        TopState::new(client.url().to_owned(), by.clone(), style::now(), style::local_offset());
    let (mut runner, mut results) = EffectRunner::new(client, by);
    let _guard = TerminalGuard::enter()?;
    let mut terminal = Terminal::new(CrosstermBackend::new(std::io::stdout()))?;
    let mut keys = EventStream::new();
    let mut seconds = tokio::time::interval(REFRESH_INTERVAL);
    loop {
        terminal.draw(|frame| view::draw(frame, &state))?;
        let message = tokio::select! {
            event = keys.next() => match event {
                Some(Ok(Event::Key(key))) if key.kind == KeyEventKind::Press => {
                    TopMessage::Key(key)
                }
                // Another size is a new frame.
                Some(Ok(_)) => continue,
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(ExitCode::SUCCESS),
            },
            Some((effect, message)) = results.recv() => {
                runner.finish(&effect);
                message
            }
            _ = seconds.tick() => TopMessage::Tick(style::now()),
            code = signals.next() => return Ok(ExitCode::from(code)),
        };
        for effect in state.update(message) {
            runner.start(effect);
        }
        if state.has_quit {
            return Ok(ExitCode::SUCCESS);
        }
    }
}
