//! The `tamma` command.
//!
//! This crate is the only one that reads the environment, the files around it and the terminal. It
//! decides nothing: it asks the others and prints what they say.

mod agents;
mod client;
mod commands;
mod draft;
mod endpoint;
mod folders;
mod look;
mod output;
mod person;
mod progress;
mod repository;
mod roles;
mod services;
mod survey;
mod watch;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::Tamma;

fn main() -> ExitCode {
    // Not a command for people: the launcher that becomes an agent inside its sandbox. What follows
    // is not for us to understand, so it is not parsed.
    if std::env::args_os().nth(1).is_some_and(|first| first == "inside") {
        return match tamma_worker::inside(std::env::args_os().skip(2)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => output::failure(&error.into()),
        };
    }
    match commands::run(&Tamma::parse()) {
        Ok(code) => code,
        // Whoever reads us has had enough, as in `tamma config show | head`.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => output::failure(&error),
    }
}
