//! The plans of a task: compared, and changed field by field.

use askama::Template;
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use similar::{ChangeTag, TextDiff};
use tamma_core::ids::TaskId;
use tamma_core::plan::{FileChange, Plan};
use uuid::Uuid;

use super::super::door::{Visitor, done};
use super::super::fields::Fields;
use super::super::shell::{Notice, Shell, When};
use super::super::{Hall, Oops, Page, render, words};
use super::{Around, task_page};
use crate::app::Error;
use crate::clock;
use crate::shape::Action;

task_page!(Compared, "task_plan.html", { versions: Vec<Version>, compared: Vec<Field> });

struct Version {
    version: u32,
    short: String,
    at: When,
    files: usize,
    complexity: u8,
    estimate: String,
    why: String,
    is_from: bool,
    is_to: bool,
}

struct Field {
    name: &'static str,
    same: bool,
    lines: Vec<Line>,
}

struct Line {
    kind: &'static str,
    sign: &'static str,
    word: &'static str,
    text: String,
}

/// Which two are compared.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::web) struct Pair {
    from: Option<u32>,
    to: Option<u32>,
}

pub(in crate::web) async fn compare(
    State(hall): State<Hall>,
    visitor: Visitor,
    Path(id): Path<Uuid>,
    Query(pair): Query<Pair>,
) -> Page {
    let (around, _) = Around::of(&hall, &visitor, id, "plan").await?;
    let plans = hall.app.store.plan_versions(TaskId(id)).await;
    let plans = plans.map_err(|error| Oops::new(Shell::of(&visitor), Error::from(error)))?;
    let newest = plans.last().map_or(0, |(version, _, _)| *version);
    let to = pair.to.unwrap_or(newest);
    let from = pair.from.unwrap_or_else(|| to.saturating_sub(1).max(1));
    let plan = |wanted| plans.iter().find(|(version, _, _)| *version == wanted);
    let compared = match (plan(from), plan(to)) {
        (Some((_, _, old)), Some((_, _, new))) => fields(old, new),
        _ => Vec::new(),
    };
    let versions = plans
        .iter()
        .map(|(version, at, plan)| Version {
            version: *version,
            short: plan.hash().to_string().chars().take(8).collect(),
            at: When::clock(*at),
            files: plan.file_changes.len(),
            complexity: plan.complexity().score,
            estimate: plan.estimated_cost_usd.map(words::dollars).unwrap_or_default(),
            why: plan.summary.clone(),
            is_from: *version == from,
            is_to: *version == to,
        })
        .collect();
    render(&Compared::new(around, versions, compared))
}

/// Two plans, field by field.
fn fields(old: &Plan, new: &Plan) -> Vec<Field> {
    let files = |plan: &Plan| {
        let line = |it: &FileChange| format!("{} {}: {}", it.action, it.path, it.description);
        plan.file_changes.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    let pairs = [
        ("Summary", old.summary.clone(), new.summary.clone()),
        ("Approach", old.approach.clone(), new.approach.clone()),
        ("Files", files(old), files(new)),
        ("Testing", old.testing_strategy.clone(), new.testing_strategy.clone()),
        ("Risks", old.risks.join("\n"), new.risks.join("\n")),
        ("Tests that will change", old.test_changes.join("\n"), new.test_changes.join("\n")),
        ("Needs", old.dependencies.join("\n"), new.dependencies.join("\n")),
    ];
    pairs
        .into_iter()
        .map(|(name, old, new)| Field { name, same: old == new, lines: lines(&old, &new) })
        .collect()
}

fn lines(old: &str, new: &str) -> Vec<Line> {
    let diff = TextDiff::from_lines(old, new);
    diff.iter_all_changes()
        .map(|change| {
            let (kind, sign, word) = match change.tag() {
                ChangeTag::Equal => ("same", " ", "as before"),
                ChangeTag::Delete => ("del", "−", "no longer"),
                ChangeTag::Insert => ("add", "+", "new"),
            };
            Line { kind, sign, word, text: change.value().trim_end().to_owned() }
        })
        .collect()
}

#[derive(Template)]
#[template(path = "plan_edit.html")]
struct Edit {
    shell: Shell,
    task: super::About,
    consequence: String,
    faults: Vec<String>,
    key: String,
    plan: Edited,
}

struct Edited {
    hash: String,
    summary: String,
    approach_text: String,
    rows: Vec<Row>,
    testing_text: String,
    risks_text: String,
    test_changes_text: String,
    dependencies_text: String,
}

struct Row {
    path: String,
    action: String,
    lines: String,
    description: String,
}

/// A form with every field of the plan that waits.
pub(in crate::web) async fn edit(
    State(hall): State<Hall>,
    visitor: Visitor,
    Path(id): Path<Uuid>,
) -> Page {
    let (around, _) = Around::of(&hall, &visitor, id, "plan").await?;
    let version = hall.app.plan(TaskId(id)).await;
    let version = version.map_err(|error| Oops::new(Shell::of(&visitor), error))?;
    let Some(plan) = version.content else { return super::super::see(&format!("/tasks/{id}")) };
    let rows = plan.file_changes.iter().map(|change| Row {
        path: change.path.clone(),
        action: change.action.to_string(),
        lines: change.estimated_lines.to_string(),
        description: change.description.clone(),
    });
    let empty = || Row {
        path: String::new(),
        action: "modify".to_owned(),
        lines: "0".to_owned(),
        description: String::new(),
    };
    let edited = Edited {
        hash: version.hash,
        rows: rows.chain([empty(), empty()]).collect(),
        summary: plan.summary,
        approach_text: plan.approach,
        testing_text: plan.testing_strategy,
        risks_text: plan.risks.join("\n"),
        test_changes_text: plan.test_changes.join("\n"),
        dependencies_text: plan.dependencies.join("\n"),
    };
    render(&Edit {
        shell: around.shell,
        task: around.task,
        consequence: format!(
            "What you change is asked of the planner, field by field. It writes version {}, which is \
             checked and comes back to be approved. Nothing runs meanwhile.",
            version.version + 1
        ),
        faults: Vec::new(),
        key: clock::new_id().to_string(),
        plan: edited,
    })
}

/// Asks for what is different in the form.
pub(in crate::web) async fn change(
    State(hall): State<Hall>,
    visitor: Visitor,
    Path(id): Path<Uuid>,
    fields: Fields,
) -> Page {
    let oops = |error: Error| Oops::new(Shell::of(&visitor), error).keeping(fields.written());
    let asked = async {
        let version = hall.app.plan(TaskId(id)).await?;
        let old = version
            .content
            .ok_or_else(|| Error::NotFound { what: "plan yet of task", key: id.to_string() })?;
        let changes = differences(&old, &fields);
        if changes.is_empty() {
            return Err(Error::invalid("Nothing is different.", "Change a field, or leave it."));
        }
        let reason = fields.text("reason");
        let changes = format!("{}\n\nWhy: {reason}", changes.join("\n\n"));
        let action = Action::AskChanges { plan: fields.text("plan"), changes };
        hall.app.ask(TaskId(id), visitor.name()?, action, fields.given("key")).await
    };
    asked.await.map_err(oops)?;
    let notice = Notice::good("The planner has your changes. The next version comes back here.");
    done(&format!("/tasks/{id}"), &notice)
}

/// What a form asks for, field by field.
fn differences(old: &Plan, fields: &Fields) -> Vec<String> {
    let mut changes = Vec::new();
    let texts = [
        ("summary", &old.summary),
        ("approach", &old.approach),
        ("testing_strategy", &old.testing_strategy),
    ];
    for (name, before) in texts {
        let now = fields.text(name);
        if now != before.trim() {
            changes.push(format!("`{name}` is to be:\n{now}"));
        }
    }
    let lists = [
        ("risks", &old.risks),
        ("test_changes", &old.test_changes),
        ("dependencies", &old.dependencies),
    ];
    for (name, before) in lists {
        let now = fields.lines(name);
        if now != *before {
            let now = if now.is_empty() { "empty".to_owned() } else { now.join("\n") };
            changes.push(format!("`{name}` is to be:\n{now}"));
        }
    }
    let files = files(fields);
    let line = |it: &(String, String, String, String)| {
        let (path, action, lines, description) = it;
        format!("- {action} {path} (about {lines} lines): {description}")
    };
    let before: Vec<_> = old
        .file_changes
        .iter()
        .map(|it| {
            let lines = it.estimated_lines.to_string();
            (it.path.clone(), it.action.to_string(), lines, it.description.trim().to_owned())
        })
        .collect();
    if files != before {
        let all: Vec<_> = files.iter().map(line).collect();
        changes.push(format!("`file_changes` are to be exactly:\n{}", all.join("\n")));
    }
    changes
}

fn files(fields: &Fields) -> Vec<(String, String, String, String)> {
    let (paths, actions) = (fields.all("path"), fields.all("file_action"));
    let (lines, descriptions) = (fields.all("estimated_lines"), fields.all("file_description"));
    let mut files = Vec::new();
    for (at, path) in paths.into_iter().enumerate() {
        if path.is_empty() {
            continue;
        }
        let of = |list: &[String]| list.get(at).cloned().unwrap_or_default();
        files.push((path, of(&actions), of(&lines), of(&descriptions)));
    }
    files
}
