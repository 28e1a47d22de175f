//! Writes the `OpenAPI` document, for `just gen`.
#![expect(clippy::print_stdout, reason = "it is there to print")]

fn main() -> Result<(), serde_json::Error> {
    println!("{}", serde_json::to_string_pretty(&tamma_server::openapi())?);
    Ok(())
}
