//! The launcher alone, for tests and trials. Otherwise `tamma inside` is it.

use std::process::ExitCode;

#[expect(clippy::print_stderr, reason = "a program says why it fails")]
fn main() -> ExitCode {
    match tamma_engine::confine::inside(std::env::args_os().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tamma-inside: {error}");
            ExitCode::from(126)
        }
    }
}
