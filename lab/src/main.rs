//! `lab` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    tamma_lab::main()
}
