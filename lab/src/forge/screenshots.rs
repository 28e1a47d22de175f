//! Screenshots of the story, taken by a browser that is signed in to the forge and to Tamma.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::support::{programs, tools};

/// Time limit of one request to the browser.
const LIMIT: Duration = Duration::from_mins(2);

/// Site of a page.
#[derive(Debug, Clone, Copy, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum PageSite {
    Forge,
    Tamma,
}

/// Browser that takes screenshots. It ends when dropped.
#[derive(Debug)]
pub(crate) struct Screenshots {
    browser: Child,
    input: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Screenshots {
    /// Starts a browser that writes to a folder, and signs in: to the forge with an account and its
    /// password, and to Tamma with a link.
    pub(crate) async fn start(
        folder: &Path,
        forge: &str,
        (account, password): (&str, &str),
        tamma: &str,
    ) -> Result<Self> {
        let scripts = programs::input("browser");
        tools::npm_install(&scripts).await?;
        let mut browser = Command::new("node")
            .arg(scripts.join("screenshots.mjs"))
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start `node`")?;
        let input = browser.stdin.take().context("standard input is not piped")?;
        let output = browser.stdout.take().context("standard output is not piped")?;
        let mut screenshots = Self { browser, input, answers: BufReader::new(output).lines() };
        let forge = json!({ "url": forge, "account": account, "password": password });
        screenshots.request(&json!({ "forge": forge, "tamma": tamma })).await?;
        Ok(screenshots)
    }

    /// Takes a screenshot of a whole page.
    pub(crate) async fn take(&mut self, name: &str, site: PageSite, url: &str) -> Result<()> {
        let request = json!({ "name": name, "site": site.to_string(), "url": url });
        self.request(&request).await.with_context(|| format!("no screenshot of {url}"))
    }

    /// Ends the browser.
    pub(crate) async fn close(self) -> Result<()> {
        let Self { mut browser, input, .. } = self;
        drop(input);
        timeout(LIMIT, browser.wait()).await.context("the browser did not end")??;
        Ok(())
    }

    async fn request(&mut self, request: &Value) -> Result<()> {
        self.input.write_all(format!("{request}\n").as_bytes()).await?;
        self.input.flush().await?;
        let answer = timeout(LIMIT, self.answers.next_line()).await;
        let answer = answer.context("the browser does not answer")??;
        let answer = answer.context("the browser ended; is Chromium installed?")?;
        ensure!(answer == "ok", "{answer}");
        Ok(())
    }
}
