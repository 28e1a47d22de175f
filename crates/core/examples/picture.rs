//! Prints the picture of the machine: `just gen` writes it to `docs/machine.md`.
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

fn main() {
    print!("{}", tamma_core::picture::draw());
}
