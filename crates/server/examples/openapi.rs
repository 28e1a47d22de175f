//! Prints the `OpenAPI` document, for `just gen`.
#![expect(clippy::print_stdout, reason = "prints its result")]

fn main() -> Result<(), serde_json::Error> {
    println!("{}", serde_json::to_string_pretty(&tamma_server::openapi())?);
    Ok(())
}
