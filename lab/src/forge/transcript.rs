//! Transcript of the story: a document with its steps, and what the forge has at its end.

use std::borrow::Cow;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use reqwest::Method;
use serde_json::Value;
use tamma_core::ids::CommitId;
use tamma_testkit::forge::GiteaServer;
use tamma_testkit::repository::Repository;
use uuid::Uuid;

/// Addresses in the transcript.
const FORGE_URL: &str = "https://code.example";
const TAMMA_URL: &str = "https://tamma.example";

/// Step of the story.
#[derive(Debug)]
pub(crate) struct StoryStep {
    pub(crate) what: String,
    /// Seconds since the previous step.
    pub(crate) took: f64,
    /// Seconds since the start.
    pub(crate) total: f64,
}

/// Numbers and commits of a story that was played to its end.
#[derive(Debug)]
pub(crate) struct DeliveredIssue {
    pub(crate) issue: u64,
    pub(crate) pull_request: u64,
    /// Pushed commits, oldest first.
    pub(crate) heads: [CommitId; 3],
}

/// Story to write down.
#[derive(Debug)]
pub(crate) struct StoryTranscript<'a> {
    pub(crate) gitea: &'a GiteaServer,
    /// Path of the repository in the forge.
    pub(crate) repository: &'a str,
    /// URL of the Tamma server.
    pub(crate) tamma: &'a str,
    pub(crate) agent: String,
    pub(crate) steps: &'a [StoryStep],
    pub(crate) delivered: &'a DeliveredIssue,
    /// State of the task, and of its entry in the merge queue.
    pub(crate) states: [String; 2],
}

/// Comment or review of the pull request.
#[derive(Debug)]
struct SaidText {
    at: String,
    by: String,
    /// Kind, and the commented file.
    kind: String,
    text: String,
}

impl StoryTranscript<'_> {
    /// Returns the document. Apart from times, it is the same for each run.
    pub(crate) async fn to_markdown(&self) -> Result<String> {
        let mut text = String::new();
        self.write_steps(&mut text)?;
        self.write_issue(&mut text).await?;
        self.write_pull_request(&mut text).await?;
        self.write_checks(&mut text).await?;
        self.write_conversation(&mut text).await?;
        self.write_end(&mut text).await?;
        let text = text.replace(&self.gitea.url(), FORGE_URL).replace(self.tamma, TAMMA_URL);
        Ok(mask(&text))
    }

    fn write_steps(&self, text: &mut String) -> Result<()> {
        let agent = &self.agent;
        write!(
            text,
            "# Story of a delivery\n\nAn issue of a real Gitea with its own CI becomes a merged pull \
             request. The agent is {agent}. `just lab forge --only story --write` plays the story and \
             writes this page and its screenshots. Addresses, IDs and commits are masked. \
             [delivery.md](delivery.md) describes delivery, and [merge-queue.md](merge-queue.md) the \
             merge queue.\n\n## Steps\n\n| | Took | At | Step |\n|--:|--:|--:|---|\n"
        )?;
        for (step, number) in self.steps.iter().zip(1..) {
            let StoryStep { what, took, total } = step;
            writeln!(text, "| {number} | {took:.1} s | {total:.1} s | {what} |")?;
        }
        Ok(())
    }

    async fn write_issue(&self, text: &mut String) -> Result<()> {
        let number = self.delivered.issue;
        let issue = self.get(&format!("issues/{number}")).await?;
        let labels: Vec<String> =
            items(&issue["labels"]).iter().map(|it| format!("`{}`", string(&it["name"]))).collect();
        write!(
            text,
            "\n## Issue\n\n![Issue with the comment that shows its progress](pictures/story-issue.png)\n\n\
             {} opened issue {number}, *{}*, with the label {}:\n\n{}",
            string(&issue["user"]["login"]),
            string(&issue["title"]),
            labels.join(", "),
            fenced(string(&issue["body"])),
        )?;
        let comments = self.get(&format!("issues/{number}/comments")).await?;
        for comment in items(&comments) {
            let (by, body) = (string(&comment["user"]["login"]), string(&comment["body"]));
            write!(text, "\nComment of {by}:\n\n{}", fenced(body))?;
        }
        Ok(())
    }

    async fn write_pull_request(&self, text: &mut String) -> Result<()> {
        let number = self.delivered.pull_request;
        let pull = self.get(&format!("pulls/{number}")).await?;
        write!(
            text,
            "\n## Pull request\n\n\
             ![Pull request after its first check failed](pictures/story-red-check.png)\n\n\
             ![Pull request with green checks, a comment and the reply](pictures/story-pull-request.png)\n\n\
             ![Changed files with the comment](pictures/story-files.png)\n\n\
             ![Merged pull request](pictures/story-merged.png)\n\n\
             {} opened pull request {number}, *{}*, from `{}` to `{}`, with this description:\n\n{}",
            string(&pull["user"]["login"]),
            string(&pull["title"]),
            string(&pull["head"]["ref"]),
            string(&pull["base"]["ref"]),
            fenced(string(&pull["body"])),
        )?;
        Ok(())
    }

    async fn write_checks(&self, text: &mut String) -> Result<()> {
        text.push_str(
            "\n## Checks\n\n| Push | Check | Result | Description |\n|--:|---|---|---|\n",
        );
        for (head, number) in self.delivered.heads.iter().zip(1..) {
            let status = self.get(&format!("commits/{head}/status")).await?;
            let mut rows: Vec<String> = items(&status["statuses"])
                .iter()
                .map(|it| {
                    let cells = ["context", "status", "description"].map(|key| cell(&it[key]));
                    format!("| {number} | {} |\n", cells.join(" | "))
                })
                .collect();
            rows.sort();
            text.push_str(&rows.concat());
        }
        Ok(())
    }

    async fn write_conversation(&self, text: &mut String) -> Result<()> {
        let number = self.delivered.pull_request;
        let mut said = Vec::new();
        for comment in items(&self.get(&format!("issues/{number}/comments")).await?) {
            said.push(SaidText::new(comment, "created_at", "comment".to_owned()));
        }
        for review in items(&self.get(&format!("pulls/{number}/reviews")).await?) {
            let kind = format!("review, `{}`", string(&review["state"]));
            said.push(SaidText::new(review, "submitted_at", kind));
            let path = format!("pulls/{number}/reviews/{}/comments", review["id"]);
            for comment in items(&self.get(&path).await?) {
                let kind = format!("comment on `{}`", string(&comment["path"]));
                said.push(SaidText::new(comment, "created_at", kind));
            }
        }
        said.retain(|it| !it.text.is_empty() || it.kind.contains("APPROVED"));
        // A stable order for texts of the same second.
        said.sort_by(|a, b| (&a.at, &a.kind, &a.text).cmp(&(&b.at, &b.kind, &b.text)));
        text.push_str("\n## Conversation\n");
        for SaidText { by, kind, text: words, .. } in said {
            write!(text, "\n{by}, {kind}")?;
            if words.is_empty() {
                text.push_str(".\n");
            } else {
                write!(text, ":\n\n{}", fenced(&words))?;
            }
        }
        Ok(())
    }

    async fn write_end(&self, text: &mut String) -> Result<()> {
        let (issue, number) = (self.delivered.issue, self.delivered.pull_request);
        let closed = self.get(&format!("issues/{issue}")).await?;
        let pull = self.get(&format!("pulls/{number}")).await?;
        let [task, entry] = &self.states;
        let clone = Repository::new()?;
        clone.git(&["fetch", "--quiet", &self.gitea.clone_url(self.repository), "main"])?;
        let log = clone.git(&["log", "--graph", "--format=%s (%an)", "FETCH_HEAD"])?;
        let names = clone.git(&["show", "FETCH_HEAD:names.txt"])?;
        write!(
            text,
            "\n## In Tamma\n\n![Task that waits for its merge](pictures/story-task.png)\n\n\
             ![Board](pictures/story-board.png)\n\n\
             ![Page of the pull requests](pictures/story-pull-requests.png)\n\n\
             ![Merge queue after the change landed](pictures/story-queue.png)\n\n\
             ## End\n\n| | State |\n|---|---|\n| Issue {issue} | {} |\n| Pull request {number} | {}, merged by \
             {} |\n| Entry of the merge queue | {entry} |\n| Task | {task} |\n\n\
             `git log --graph` of `main`:\n\n{}\n`names.txt` on `main`:\n\n{}",
            string(&closed["state"]),
            string(&pull["state"]),
            string(&pull["merged_by"]["login"]),
            fenced(&log),
            fenced(&names),
        )?;
        Ok(())
    }

    /// Reads something of the repository from the forge.
    async fn get(&self, path: &str) -> Result<Value> {
        let path = format!("/repos/{}/{path}", self.repository);
        self.gitea
            .expect(200, Method::GET, &path, None)
            .await
            .with_context(|| format!("cannot read {path} for the transcript"))
    }
}

impl SaidText {
    fn new(value: &Value, time: &str, kind: String) -> Self {
        Self {
            at: string(&value[time]).to_owned(),
            by: string(&value["user"]["login"]).to_owned(),
            kind,
            text: string(&value["body"]).trim().to_owned(),
        }
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns a text as a cell of a table.
fn cell(value: &Value) -> String {
    string(value).replace('|', "\\|").replace('\n', " ")
}

/// Returns Markdown of the forge as a block that it cannot close.
fn fenced(text: &str) -> String {
    let mut fence = "```".to_owned();
    while text.contains(&fence) {
        fence.push('`');
    }
    format!("{fence}text\n{}\n{fence}\n", text.replace('\r', "").trim_end())
}

/// Replaces IDs and commits, which differ in each run.
fn mask(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut word = String::new();
    for character in text.chars() {
        if character.is_ascii_alphanumeric() || character == '-' {
            word.push(character);
            continue;
        }
        masked.push_str(&mask_word(&word));
        masked.push(character);
        word.clear();
    }
    masked.push_str(&mask_word(&word));
    masked
}

fn mask_word(word: &str) -> Cow<'_, str> {
    let is_commit = (7..=40).contains(&word.len())
        && word.chars().all(|it| it.is_ascii_digit() || ('a'..='f').contains(&it))
        && word.contains(|it: char| it.is_ascii_digit());
    if word.len() == 36 && Uuid::try_parse(word).is_ok() {
        return "ID".into();
    }
    if is_commit {
        return "COMMIT".into();
    }
    // Branches have the end of the ID, and words of the title.
    match word.split_once('-') {
        Some((id, title)) if id.len() == 8 && id.chars().all(|it| it.is_ascii_hexdigit()) => {
            format!("ID-{title}").into()
        }
        _ => word.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_commits_are_masked_and_words_and_numbers_stay() {
        let text = "0192a000-0000-7000-8000-000200000001 on `tamma/00000001-greet-cy` at 1a2b3c4, 12 of \
             123456 deface names, well-known";
        let masked = "ID on `tamma/ID-greet-cy` at COMMIT, 12 of 123456 deface names, well-known";
        assert_eq!(mask(text), masked);
        assert_eq!(mask(&format!("({})", "0a".repeat(20))), "(COMMIT)");
    }

    #[test]
    fn a_block_cannot_be_closed_by_its_text() {
        assert_eq!(fenced("a\r\n"), "```text\na\n```\n");
        assert_eq!(fenced("```\nb\n```"), "````text\n```\nb\n```\n````\n");
    }
}
