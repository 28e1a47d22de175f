//! Starts the children of a recorded task again, for another task.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};

use super::{ChildPlan, ChildProcess, parse_object_id};

/// Texts of the recorded task and their replacements, such as the task's ID and its commits.
type Replacements = Vec<(String, String)>;

/// Returns the start of the name of a task's branch: it has the last digits of the task's ID.
fn branch_start(task: &str) -> String {
    let digits = task.len().saturating_sub(8);
    format!("tamma/{}-", task.get(digits..).unwrap_or(task))
}

/// Starts the children of the recorded task for other tasks.
#[derive(Debug)]
pub(crate) struct ChildPlayer {
    plan: ChildPlan,
    tasks: Mutex<BTreeMap<String, Replacements>>,
    /// Held while git changes the list of worktrees, as Tamma does: a second command can find an entry
    /// that is half written.
    worktrees: tokio::sync::Mutex<()>,
}

impl ChildPlayer {
    pub(crate) fn new(plan: ChildPlan) -> Self {
        Self { plan, tasks: Mutex::default(), worktrees: tokio::sync::Mutex::default() }
    }

    /// Starts the children of one call for a task, and waits for them. After the last call, the rest
    /// runs in the background, as it does in Tamma's worker.
    pub(crate) async fn play(self: &Arc<Self>, task: &str, call: usize) -> Result<()> {
        let children = self.plan.calls.get(call).map(Vec::as_slice).unwrap_or_default();
        self.run_all(task, children).await?;
        if call == self.plan.last {
            let (player, task) = (Arc::clone(self), task.to_owned());
            tokio::spawn(async move { player.finish(&task).await });
        }
        Ok(())
    }

    /// Starts what comes after the last call, and removes the task's folders.
    async fn finish(&self, task: &str) {
        if let Err(error) = self.run_all(task, &self.plan.after).await {
            report(&error);
        }
        let replacements = self.replacements(task);
        let _lock = self.worktrees.lock().await;
        for folder in &self.plan.folders {
            // It may be inside one that is gone.
            let _ = tokio::fs::remove_dir_all(replace(folder, &replacements)).await;
        }
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).remove(task);
    }

    async fn run_all(&self, task: &str, children: &[ChildProcess]) -> Result<()> {
        for group in overlapping(children) {
            try_join_all(group.iter().map(|child| self.run(task, child))).await?;
        }
        Ok(())
    }

    async fn run(&self, task: &str, child: &ChildProcess) -> Result<()> {
        let replacements = self.replacements(task);
        let text = |text: &String| replace(text, &replacements);
        let folder = text(&child.folder);
        tokio::fs::create_dir_all(&folder).await?;
        let arguments: Vec<String> = child.arguments.iter().map(text).collect();
        let (program, rest) = arguments.split_first().context("a child without a program")?;
        let is_worktree = arguments.get(1).is_some_and(|command| command == "worktree");
        let _lock = if is_worktree { Some(self.worktrees.lock().await) } else { None };
        let has_input = child.is_agent || !child.input.is_empty();
        let mut process = Command::new(program)
            .args(rest)
            .current_dir(&folder)
            .env_clear()
            .envs(child.environment.iter().map(|(name, value)| (name, text(value))))
            .stdin(if has_input { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start `{program}`"))?;
        let input = text(&child.input);
        if child.is_agent {
            converse(&mut process, &input).await?;
        } else if let Some(mut stdin) = process.stdin.take() {
            stdin.write_all(input.as_bytes()).await?;
        }
        let output = process.wait_with_output().await?;
        ensure!(
            output.status.code() == Some(child.exit),
            "`{}` in `{folder}` ended with {} instead of {}: {}",
            arguments.join(" "),
            output.status,
            child.exit,
            String::from_utf8_lossy(&output.stderr)
        );
        if let (Some(recorded), Some(now)) = (&child.object, parse_object_id(&output.stdout))
            && *recorded != now
        {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(replacements) = tasks.get_mut(task) {
                replacements.push((recorded.clone(), now));
            }
        }
        Ok(())
    }

    fn replacements(&self, task: &str) -> Replacements {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let names = || {
            let recorded = &self.plan.task;
            vec![(recorded.clone(), task.to_owned()), (branch_start(recorded), branch_start(task))]
        };
        tasks.entry(task.to_owned()).or_insert_with(names).clone()
    }
}

fn replace(text: &str, replacements: &[(String, String)]) -> String {
    let replaced = |text: String, (from, to): &(String, String)| text.replace(from, to);
    replacements.iter().fold(text.to_owned(), replaced)
}

/// Splits children into groups that ran at the same time: the next group starts where the first of
/// the current one had ended.
fn overlapping(children: &[ChildProcess]) -> Vec<&[ChildProcess]> {
    let (mut groups, mut from) = (Vec::new(), 0);
    while from < children.len() {
        let rest = &children[from..];
        let ends = |count: usize| rest[..count].iter().map(|child| child.end).min();
        let length = (1..rest.len())
            .find(|&count| ends(count).is_some_and(|end| rest[count].start >= end))
            .unwrap_or(rest.len());
        groups.push(&rest[..length]);
        from += length;
    }
    groups
}

/// Sends the recorded requests to an agent, each after the response to the previous one, and grants
/// every permission.
async fn converse(process: &mut Child, input: &str) -> Result<()> {
    let mut stdin = process.stdin.take().context("the agent has no standard input")?;
    let stdout = process.stdout.take().context("the agent has no standard output")?;
    let mut lines = BufReader::new(stdout).lines();
    for request in input.lines() {
        let message: Value = serde_json::from_str(request)?;
        let (Some(id), Some(_)) = (message.get("id"), message.get("method")) else { continue };
        stdin.write_all(format!("{request}\n").as_bytes()).await?;
        loop {
            let line = lines.next_line().await?.context("the agent ended early")?;
            let response: Value = serde_json::from_str(&line)?;
            if let Some(granted) = grant(&response) {
                stdin.write_all(format!("{granted}\n").as_bytes()).await?;
            } else if response.get("method").is_none() && response.get("id") == Some(id) {
                break;
            }
        }
    }
    drop(stdin);
    while lines.next_line().await?.is_some() {}
    Ok(())
}

/// Returns the response to a request for a permission.
fn grant(request: &Value) -> Option<Value> {
    let id = request.get("id")?;
    request.get("method").filter(|method| *method == "session/request_permission")?;
    let options = request.pointer("/params/options")?.as_array()?;
    let allows = |option: &&Value| {
        option.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.starts_with("allow"))
    };
    let option = options.iter().find(allows)?.get("optionId")?;
    let outcome = json!({ "outcome": "selected", "optionId": option });
    Some(json!({ "jsonrpc": "2.0", "id": id, "result": { "outcome": outcome } }))
}

#[expect(clippy::print_stderr, reason = "nobody waits for work after the last call")]
fn report(error: &anyhow::Error) {
    eprintln!("lab: a replayed child failed: {error:#}");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn child(start: u64, end: u64, script: &str, folder: &str) -> ChildProcess {
        ChildProcess {
            arguments: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            folder: folder.to_owned(),
            environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            input: String::new(),
            exit: 0,
            object: None,
            is_agent: false,
            start: Duration::from_millis(start),
            end: Duration::from_millis(end),
        }
    }

    #[test]
    fn children_that_overlapped_run_together() {
        let spans = [(0, 10), (10, 20), (12, 15), (13, 40), (16, 18), (50, 60)];
        let children: Vec<_> =
            spans.iter().map(|&(start, end)| child(start, end, "true", "/")).collect();
        let lengths: Vec<_> = overlapping(&children).iter().map(|group| group.len()).collect();
        assert_eq!(lengths, [1, 3, 1, 1]);
    }

    #[test]
    fn only_a_request_for_a_permission_is_granted() {
        let options = json!([
            { "optionId": "no", "kind": "reject_once" },
            { "optionId": "yes", "kind": "allow_once" },
        ]);
        let request = json!({
            "id": 7, "method": "session/request_permission", "params": { "options": options },
        });
        let granted = grant(&request).expect("granted");
        assert_eq!(granted["id"], 7);
        assert_eq!(granted["result"]["outcome"]["optionId"], "yes");
        assert_eq!(grant(&json!({ "id": 7, "result": {} })), None);
        assert_eq!(grant(&json!({ "method": "session/update", "params": {} })), None);
    }

    #[tokio::test]
    async fn a_replay_names_its_own_task_and_its_own_objects() {
        let folder = tempfile::tempdir().expect("folder");
        let root = folder.path().display().to_string();
        let [one, two] = ["1", "2"].map(|digit| digit.repeat(40));
        // Prints another object than in the recording; the next child has to name that one.
        let prints = ChildProcess {
            object: Some(one.clone()),
            ..child(0, 1, &format!("echo {two}"), &format!("{root}/old-00000001"))
        };
        let names = format!("echo {one} tamma/00000001-greet > {root}/old-00000001.out");
        let names = child(2, 3, &names, &root);
        let plan = ChildPlan {
            task: "old-00000001".to_owned(),
            calls: vec![vec![prints], vec![names]],
            after: Vec::new(),
            last: 5,
            folders: Vec::new(),
        };
        let player = Arc::new(ChildPlayer::new(plan));
        for call in 0..2 {
            player.play("new-00000002", call).await.expect("played");
        }
        let written = std::fs::read_to_string(folder.path().join("new-00000002.out"));
        let expected = format!("{two} tamma/00000002-greet");
        assert_eq!(written.expect("written").trim(), expected);
    }

    #[tokio::test]
    async fn another_exit_code_than_the_recorded_one_is_an_error() {
        let plan = ChildPlan {
            task: "T".to_owned(),
            calls: vec![vec![child(0, 1, "exit 2", "/")]],
            after: Vec::new(),
            last: 1,
            folders: Vec::new(),
        };
        let player = Arc::new(ChildPlayer::new(plan));
        assert!(player.play("other", 0).await.is_err());
        player.play("other", 3).await.expect("a call without children");
    }
}
