//! The scripted model as a program: `scripted-model SCRIPT.json [--port N] [--log FILE]`.
//!
//! It prints its address and serves until it is stopped. `--log` adds every request that comes to a file,
//! one a line.

use std::io::Write as _;

use anyhow::{Context as _, bail};
use tamma_testkit::model::{Model, Request, Script};

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "its address is what the program is asked for")]
async fn main() -> anyhow::Result<()> {
    let (mut script, mut port, mut log) = (None, 0, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if arg == "--port" {
            port = args.next().context("`--port` needs a number")?.parse().context("`--port`")?;
        } else if arg == "--log" {
            let path = args.next().context("`--log` needs a file")?;
            let file = std::fs::File::options().create(true).append(true).open(&path);
            log = Some(file.with_context(|| format!("cannot write `{path}`"))?);
        } else if script.is_none() && !arg.starts_with('-') {
            let text = std::fs::read(&arg).with_context(|| format!("cannot read `{arg}`"))?;
            script = Some(serde_json::from_slice::<Script>(&text).with_context(|| arg)?);
        } else {
            bail!("`{arg}` is not understood: scripted-model SCRIPT.json [--port N] [--log FILE]");
        }
    }
    let script = script.context("scripted-model SCRIPT.json [--port N] [--log FILE]")?;
    let heard = move |request: &Request| {
        if let (Some(mut log), Ok(line)) = (log.as_ref(), serde_json::to_string(request)) {
            // A log that cannot be written is no reason to stop answering.
            let _ = writeln!(log, "{line}");
        }
    };
    let model = Model::start_at(port, script, heard).await?;
    println!("{}", model.address());
    std::future::pending().await
}
