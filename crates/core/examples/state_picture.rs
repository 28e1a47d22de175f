//! Prints the picture of the state machine. `just gen` writes it to `docs/pictures/machine.svg`.
#![expect(clippy::print_stdout, reason = "the output is the purpose of the program")]

fn main() {
    print!("{}", tamma_core::state_diagram::draw());
}
