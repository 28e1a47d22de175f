//! `tamma` command.
//!
//! Only this crate reads the environment, the files around it and the terminal. It contains no
//! decisions: it calls the other crates and prints their results.

mod agents;
mod background;
mod client;
mod clock_check;
mod commands;
mod commit_files;
mod config_draft;
mod data_folder;
mod endpoint;
mod example_project;
mod identity;
mod operator_file;
mod operator_token;
mod output;
mod progress;
mod remote_config;
mod repository;
mod roles;
mod saved_logins;
mod services;
mod span_export;
mod style;
mod survey;
mod temporal_connection;
mod top;
mod watch;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Internal command: the launcher that becomes the agent inside its sandbox. Its arguments are
    // the agent's, so clap does not parse them.
    if std::env::args_os().nth(1).is_some_and(|first| first == "sandbox-launcher") {
        return match tamma_worker::run_launcher(std::env::args_os().skip(2)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => output::report_failure(&error.into()),
        };
    }
    match commands::run(&commands::parse()) {
        Ok(code) => code,
        // The reader closed the pipe, as in `tamma config show | head`.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => output::report_failure(&error),
    }
}
