//! Scripted model as a program: `scripted-model SCRIPT.json [--port N] [--log FILE]`.
//!
//! Prints its address and serves until it is stopped. `--log` appends every request to a file, one
//! per line.

use std::io::Write as _;

use anyhow::{Context as _, bail};
use tamma_testkit::model::{RecordedRequest, Script, ScriptedModel};

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "the program prints its address")]
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
            bail!(
                "unexpected argument `{arg}`; usage: scripted-model SCRIPT.json [--port N] [--log FILE]"
            );
        }
    }
    let script = script.context("usage: scripted-model SCRIPT.json [--port N] [--log FILE]")?;
    let observer = move |request: &RecordedRequest| {
        if let (Some(mut log), Ok(line)) = (log.as_ref(), serde_json::to_string(request)) {
            // Keep serving if the log cannot be written.
            let _ = writeln!(log, "{line}");
        }
    };
    let model = ScriptedModel::start_at(port, script, observer).await?;
    println!("{}", model.address());
    std::future::pending().await
}
