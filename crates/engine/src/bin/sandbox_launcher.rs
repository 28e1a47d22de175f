//! Standalone sandbox launcher for tests and the lab. In production, `tamma sandbox-launcher` is the
//! launcher.

use std::process::ExitCode;

#[expect(clippy::print_stderr, reason = "a program reports its error")]
fn main() -> ExitCode {
    match tamma_engine::sandbox::run_launcher(std::env::args_os().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandbox-launcher: {error}");
            ExitCode::from(126)
        }
    }
}
