//! Terminal in raw mode on its alternate screen, restored in every case: at the end, after a panic
//! and after a signal.

use std::io::{self, stdout};

use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Guard that restores the terminal when it is dropped.
pub(super) struct TerminalGuard(());

impl TerminalGuard {
    /// Switches the terminal to raw mode and its alternate screen.
    pub(super) fn enter() -> io::Result<Self> {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // Before the message, so that it is readable.
            restore();
            hook(info);
        }));
        enable_raw_mode()?;
        // From here on, an error restores the terminal, too.
        let guard = Self(());
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        Ok(guard)
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal as far as possible: there is nobody to report an error to.
fn restore() {
    let _ = disable_raw_mode();
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
}

/// Signals that end the program. In raw mode, the terminal sends none for Ctrl-C.
pub(super) struct StopSignals {
    hangup: Signal,
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
}

impl StopSignals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for a signal and returns the exit code for it.
    pub(super) async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.hangup.recv() => 129,
            _ = self.interrupt.recv() => 130,
            _ = self.quit.recv() => 131,
            _ = self.terminate.recv() => 143,
        }
    }
}
