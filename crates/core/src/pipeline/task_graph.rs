//! Tasks of a story: the split that a planner proposes, and its progress.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::Display;

use crate::ids::{Reference, TaskId};
use crate::task::{Priority, TaskType};

/// Largest number of tasks of a story.
const MAX_TASKS: usize = 50;

/// Task of a story, as its planner proposes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoryTask {
    /// Short key, unique in the story, such as `T1` or `api`.
    pub key: String,
    /// Title, one line.
    pub title: String,
    /// Everything that an agent needs to know, without the story at hand.
    pub description: String,
    /// Type of the task.
    #[serde(default = "default_type")]
    pub r#type: TaskType,
    /// Priority of the task.
    #[serde(default)]
    pub priority: Priority,
    /// Acceptance criteria, at least one; each can be judged on its own.
    pub acceptance_criteria: Vec<String>,
    /// Keys of the tasks that must be completed first.
    #[serde(default)]
    pub depends_on: Vec<String>,
    /// Estimated number of changed lines.
    pub estimated_lines: u32,
}

fn default_type() -> TaskType {
    TaskType::Feature
}

/// Split of a story into tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskSplit {
    /// Tasks, each a change of its own that can be reviewed.
    pub tasks: Vec<StoryTask>,
}

impl TaskSplit {
    /// Returns everything that is wrong with the split.
    pub fn validate(&self) -> Vec<String> {
        let mut errors = Vec::new();
        if self.tasks.is_empty() || self.tasks.len() > MAX_TASKS {
            errors.push(format!("`tasks` has {} items; use 1 to {MAX_TASKS}", self.tasks.len()));
        }
        let mut keys = BTreeSet::new();
        for task in &self.tasks {
            let key = &task.key;
            let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            if key.is_empty() || key.len() > 40 || !key.chars().all(is_allowed) {
                errors.push(format!("key `{key}`: use 1 to 40 letters, digits, `-` or `_`"));
            }
            if !keys.insert(key) {
                errors.push(format!("key `{key}` is used twice"));
            }
            let title = task.title.trim();
            if title.is_empty() || title.lines().count() > 1 || title.len() > 500 {
                errors
                    .push(format!("task `{key}`: `title` must be one line, up to 500 characters"));
            }
            if task.acceptance_criteria.iter().all(|criterion| criterion.trim().is_empty()) {
                errors.push(format!("task `{key}`: `acceptance_criteria` is empty"));
            }
        }
        for task in &self.tasks {
            for other in task.depends_on.iter().filter(|other| !keys.contains(other)) {
                errors.push(format!("task `{}` depends on unknown task `{other}`", task.key));
            }
        }
        if errors.is_empty()
            && let Some(key) = self.cycle()
        {
            errors.push(format!("task `{key}` depends on itself, directly or through others"));
        }
        errors
    }

    /// Returns a task that is part of a cycle of dependencies.
    fn cycle(&self) -> Option<&str> {
        let mut open: BTreeMap<&str, BTreeSet<&str>> = self
            .tasks
            .iter()
            .map(|task| (&*task.key, task.depends_on.iter().map(String::as_str).collect()))
            .collect();
        loop {
            let free: Vec<_> = open
                .iter()
                .filter(|(_, needed)| needed.iter().all(|key| !open.contains_key(key)))
                .map(|(key, _)| *key)
                .collect();
            if free.is_empty() {
                return open.into_keys().next();
            }
            for key in free {
                open.remove(key);
            }
        }
    }

    /// Returns the graph of the split, with no task started.
    pub fn graph(&self, split: Reference) -> TaskGraph {
        let node = |task: &StoryTask| TaskNode {
            key: task.key.clone(),
            title: task.title.trim().to_owned(),
            depends_on: task.depends_on.clone(),
            status: NodeStatus::Waiting,
            task: None,
            reason: None,
        };
        TaskGraph { split, nodes: self.tasks.iter().map(node).collect() }
    }
}

/// Progress of a task in the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum NodeStatus {
    /// Not started.
    Waiting,
    /// In the task loop.
    Running,
    /// Completed.
    Complete,
    /// Failed, was cancelled, or could not be merged into the story's branch.
    Failed,
    /// Never started: a task that it depends on failed, or the run was cancelled.
    Skipped,
}

/// Task in the graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskNode {
    /// Key of the task in the story.
    pub key: String,
    /// Title of the task.
    pub title: String,
    /// Keys of the tasks that must be completed first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// Progress.
    pub status: NodeStatus,
    /// ID of the task, once it has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// Reason why a completed task could not be merged into the story's branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Tasks of a phase, with their dependencies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskGraph {
    /// Stored split.
    pub split: Reference,
    /// Tasks, in the order of the split.
    pub nodes: Vec<TaskNode>,
}

impl TaskGraph {
    fn status(&self, key: &str) -> Option<NodeStatus> {
        self.nodes.iter().find(|node| node.key == key).map(|node| node.status)
    }

    /// Returns the keys of the tasks that can start now, at most so many that `parallel` run.
    pub fn ready(&self, parallel: Option<u16>) -> Vec<String> {
        let running = self.nodes.iter().filter(|node| node.status == NodeStatus::Running).count();
        let limit = parallel.map_or(usize::MAX, usize::from).saturating_sub(running);
        let is_complete = |key: &String| self.status(key) == Some(NodeStatus::Complete);
        self.nodes
            .iter()
            .filter(|node| node.status == NodeStatus::Waiting)
            .filter(|node| node.depends_on.iter().all(is_complete))
            .take(limit)
            .map(|node| node.key.clone())
            .collect()
    }

    /// Returns `true` if no task runs and none can start.
    pub fn is_over(&self) -> bool {
        !self
            .nodes
            .iter()
            .any(|node| matches!(node.status, NodeStatus::Waiting | NodeStatus::Running))
    }

    /// Returns the keys of tasks with this status.
    pub fn keys(&self, status: NodeStatus) -> Vec<&str> {
        let nodes = self.nodes.iter().filter(|node| node.status == status);
        nodes.map(|node| node.key.as_str()).collect()
    }

    /// Marks tasks as started.
    pub(super) fn start(&mut self, started: &BTreeMap<String, TaskId>) {
        for node in &mut self.nodes {
            if let Some(task) = started.get(&node.key) {
                node.status = NodeStatus::Running;
                node.task = Some(*task);
            }
        }
    }

    /// Records the end of a running task. Its dependants are skipped if it failed.
    pub(super) fn end(&mut self, task: TaskId, completed: bool, reason: Option<String>) -> bool {
        let running =
            |node: &&mut TaskNode| node.task == Some(task) && node.status == NodeStatus::Running;
        let Some(node) = self.nodes.iter_mut().find(running) else { return false };
        node.status = if completed { NodeStatus::Complete } else { NodeStatus::Failed };
        node.reason = reason;
        self.skip_dependants();
        true
    }

    /// Skips the tasks that have not started, and returns those that run.
    pub(super) fn cancel(&mut self) -> Vec<TaskId> {
        let mut running = Vec::new();
        for node in &mut self.nodes {
            match node.status {
                NodeStatus::Waiting => node.status = NodeStatus::Skipped,
                NodeStatus::Running => running.extend(node.task),
                NodeStatus::Complete | NodeStatus::Failed | NodeStatus::Skipped => {}
            }
        }
        running
    }

    fn skip_dependants(&mut self) {
        loop {
            let lost: BTreeSet<String> = self
                .nodes
                .iter()
                .filter(|node| matches!(node.status, NodeStatus::Failed | NodeStatus::Skipped))
                .map(|node| node.key.clone())
                .collect();
            let mut changed = false;
            for node in &mut self.nodes {
                let is_lost = node.depends_on.iter().any(|key| lost.contains(key));
                if node.status == NodeStatus::Waiting && is_lost {
                    node.status = NodeStatus::Skipped;
                    changed = true;
                }
            }
            if !changed {
                return;
            }
        }
    }

    /// Resets the tasks that are not complete, so that they can start again.
    pub(super) fn reset(&mut self) {
        for node in self.nodes.iter_mut().filter(|node| node.status != NodeStatus::Complete) {
            node.status = NodeStatus::Waiting;
            node.task = None;
            node.reason = None;
        }
    }
}
