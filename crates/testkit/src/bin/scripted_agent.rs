//! Scripted agent on standard input and output.

use agent_client_protocol::ByteStreams;
use anyhow::Context as _;
use tamma_testkit::agent::{SCRIPT_VARIABLE, serve};
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let script = match std::env::var_os(SCRIPT_VARIABLE) {
        Some(path) => {
            let text = std::fs::read(&path)
                .with_context(|| format!("cannot read `{}`", path.display()))?;
            Some(serde_json::from_slice(&text).with_context(|| format!("`{}`", path.display()))?)
        }
        None => None,
    };
    let transport =
        ByteStreams::new(tokio::io::stdout().compat_write(), tokio::io::stdin().compat());
    serve(script, transport)
        .await
        .map_err(|error| anyhow::anyhow!("the connection failed: {error:?}"))
}
