//! Prints the state diagram. `just gen` writes it to `docs/machine.md`.
#![expect(clippy::print_stdout, reason = "the output is the purpose of the program")]

fn main() {
    print!("{}", tamma_core::state_diagram::render());
}
