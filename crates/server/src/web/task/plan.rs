//! Plans of a task: comparison and editing.

use askama::Template;
use axum::extract::{Path, Query};
use serde::Deserialize;
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};
use tamma_core::format::{format_usd, pluralize};
use tamma_core::ids::TaskId;
use tamma_core::plan::{FileChange, Plan, PlanAdjustment, PlannedTest};
use uuid::Uuid;

use super::super::form_fields::FormFields;
use super::super::layout::{DisplayTime, Layout, Notice};
use super::super::session::{Session, redirect_with_notice};
use super::super::{PageError, PageResult, WebState, labels, render};
use super::{TaskPageContext, task_page};
use crate::app::Error;
use crate::clock;
use crate::dto::TaskAction;

task_page!(PlanComparisonPage, "task_plan.html", {
    versions: Vec<PlanVersionRow>, compared: Vec<ComparedField>,
});

struct PlanVersionRow {
    version: u32,
    short_hash: String,
    at: DisplayTime,
    /// Files, complexity and estimated cost.
    facts: String,
    summary: String,
    is_from: bool,
    is_to: bool,
}

struct ComparedField {
    name: &'static str,
    is_unchanged: bool,
    lines: Vec<PlanDiffLine>,
}

struct PlanDiffLine {
    kind: &'static str,
    sign: &'static str,
    word: &'static str,
    text: String,
}

/// Query parameters: plan versions to compare.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::web) struct ComparisonQuery {
    from: Option<u32>,
    to: Option<u32>,
}

pub(in crate::web) async fn compare(
    state: WebState,
    session: Session,
    Path(id): Path<Uuid>,
    Query(pair): Query<ComparisonQuery>,
) -> PageResult {
    let (context, _) = TaskPageContext::load(&state, &session, id, "plan").await?;
    let plans = state.app.store.plan_versions(TaskId(id)).await;
    let plans =
        plans.map_err(|error| PageError::new(Layout::for_session(&session), Error::from(error)))?;
    let newest = plans.last().map_or(0, |(version, _, _)| *version);
    let to = pair.to.unwrap_or(newest);
    let from = pair.from.unwrap_or_else(|| to.saturating_sub(1).max(1));
    let plan = |number| plans.iter().find(|(version, _, _)| *version == number);
    let compared = match (plan(from), plan(to)) {
        (Some((_, _, old)), Some((_, _, new))) => compare_fields(old, new),
        _ => Vec::new(),
    };
    let versions = plans
        .iter()
        .map(|(version, at, plan)| PlanVersionRow {
            version: *version,
            short_hash: labels::short_hash(&plan.hash()),
            at: DisplayTime::absolute(*at),
            facts: plan_facts(plan),
            summary: plan.summary.clone(),
            is_from: *version == from,
            is_to: *version == to,
        })
        .collect();
    render(&PlanComparisonPage::new(context, versions, compared))
}

fn plan_facts(plan: &Plan) -> String {
    let files = pluralize(plan.file_changes.len(), "file");
    let estimate = plan.estimated_cost_usd.map(|usd| format!(", about {}", format_usd(usd)));
    let complexity = plan.complexity().score;
    format!("{files}, complexity {complexity} of 14{}", estimate.unwrap_or_default())
}

/// Compares two plans, field by field.
fn compare_fields(old: &Plan, new: &Plan) -> Vec<ComparedField> {
    let files = |plan: &Plan| {
        let line = |it: &FileChange| format!("{} {}: {}", it.action, it.path, it.description);
        plan.file_changes.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    let verification = |plan: &Plan| {
        let line = |it: &PlannedTest| format!("{}: {}", it.criterion, it.test);
        plan.verification.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    let pairs = [
        ("Summary", old.summary.clone(), new.summary.clone()),
        ("Approach", old.approach.clone(), new.approach.clone()),
        ("Files", files(old), files(new)),
        ("Testing", old.testing_strategy.clone(), new.testing_strategy.clone()),
        ("Proposed criteria", old.criteria.join("\n"), new.criteria.join("\n")),
        ("Verification", verification(old), verification(new)),
        ("Assumptions", old.assumptions.join("\n"), new.assumptions.join("\n")),
        ("Questions", old.questions.join("\n"), new.questions.join("\n")),
        ("Risks", old.risks.join("\n"), new.risks.join("\n")),
        ("Tests that will change", old.test_changes.join("\n"), new.test_changes.join("\n")),
        ("Dependencies", old.dependencies.join("\n"), new.dependencies.join("\n")),
    ];
    pairs
        .into_iter()
        .map(|(name, old, new)| ComparedField {
            name,
            is_unchanged: old == new,
            lines: diff_lines(&old, &new),
        })
        .collect()
}

fn diff_lines(old: &str, new: &str) -> Vec<PlanDiffLine> {
    let diff = TextDiff::from_lines(old, new);
    diff.iter_all_changes()
        .map(|change| {
            let (kind, sign, word) = match change.tag() {
                ChangeTag::Equal => ("same", " ", "unchanged"),
                ChangeTag::Delete => ("del", "−", "removed"),
                ChangeTag::Insert => ("add", "+", "added"),
            };
            PlanDiffLine { kind, sign, word, text: change.value().trim_end().to_owned() }
        })
        .collect()
}

#[derive(Template)]
#[template(path = "edit_plan.html")]
struct EditPlanPage {
    layout: Layout,
    task: super::TaskHeader,
    consequence: String,
    errors: Vec<String>,
    idempotency_key: String,
    plan: PlanForm,
}

struct PlanForm {
    hash: String,
    summary: String,
    approach_text: String,
    rows: Vec<PlanFileRow>,
    testing_text: String,
    criteria_text: String,
    assumptions_text: String,
    questions_text: String,
    risks_text: String,
    test_changes_text: String,
    dependencies_text: String,
}

struct PlanFileRow {
    path: String,
    action: String,
    lines: String,
    description: String,
}

/// Renders the form to edit the current plan.
pub(in crate::web) async fn edit_form(
    state: WebState,
    session: Session,
    Path(id): Path<Uuid>,
) -> PageResult {
    let (context, _) = TaskPageContext::load(&state, &session, id, "plan").await?;
    let version = state.app.current_plan(TaskId(id)).await;
    let version = version.map_err(|error| PageError::new(Layout::for_session(&session), error))?;
    let Some(plan) = version.content else {
        return super::super::redirect(&format!("/tasks/{id}"));
    };
    let rows = plan.file_changes.iter().map(|change| PlanFileRow {
        path: change.path.clone(),
        action: change.action.to_string(),
        lines: change.estimated_lines.to_string(),
        description: change.description.clone(),
    });
    let empty = || PlanFileRow {
        path: String::new(),
        action: "modify".to_owned(),
        lines: "0".to_owned(),
        description: String::new(),
    };
    let edited = PlanForm {
        hash: version.hash,
        rows: rows.chain([empty(), empty()]).collect(),
        summary: plan.summary,
        approach_text: plan.approach,
        testing_text: plan.testing_strategy,
        criteria_text: plan.criteria.join("\n"),
        assumptions_text: plan.assumptions.join("\n"),
        questions_text: plan.questions.join("\n"),
        risks_text: plan.risks.join("\n"),
        test_changes_text: plan.test_changes.join("\n"),
        dependencies_text: plan.dependencies.join("\n"),
    };
    render(&EditPlanPage {
        layout: context.layout,
        task: context.task,
        consequence: format!(
            "Your edits become plan {}, which is checked and needs approval again. Apply them as \
             they are, or send them to the planner. Nothing runs until then.",
            version.version + 1
        ),
        errors: Vec::new(),
        idempotency_key: clock::new_id().to_string(),
        plan: edited,
    })
}

/// Applies the edited fields, or sends them to the planner.
pub(in crate::web) async fn submit_changes(
    state: WebState,
    session: Session,
    Path(id): Path<Uuid>,
    fields: FormFields,
) -> PageResult {
    let page_error = |error: Error| {
        PageError::new(Layout::for_session(&session), error).with_unsent_text(fields.user_text())
    };
    let submitted = async {
        let version = state.app.current_plan(TaskId(id)).await?;
        let old = version
            .content
            .ok_or_else(|| Error::NotFound { what: "plan of task", key: id.to_string() })?;
        let adjustments = adjustments(&old, &fields)?;
        if adjustments.is_empty() {
            return Err(Error::invalid("The plan is unchanged.", "Change at least one field."));
        }
        let (plan, reason) = (fields.text("plan"), fields.text("reason"));
        let action = if fields.text("how") == "apply" {
            TaskAction::AdjustPlan { plan, adjustments, reason }
        } else {
            let changes: Vec<_> = adjustments.iter().map(describe_adjustment).collect();
            let changes = format!("{}\n\nReason: {reason}", changes.join("\n\n"));
            TaskAction::AskChanges { plan, changes }
        };
        let notice = match &action {
            TaskAction::AdjustPlan { .. } => "Plan edited. The edited plan needs approval.",
            _ => "Plan revision requested. The next plan needs approval.",
        };
        state
            .app
            .perform_action(TaskId(id), session.acting_person()?, action, fields.non_empty("key"))
            .await?;
        Ok(notice)
    };
    let notice = submitted.await.map_err(page_error)?;
    redirect_with_notice(&format!("/tasks/{id}"), &Notice::success(notice))
}

/// Returns the fields that the form changes.
fn adjustments(old: &Plan, fields: &FormFields) -> Result<Vec<PlanAdjustment>, Error> {
    let mut edits = Vec::new();
    let mut edit = |field: &str, before: Value, new_value: Value| {
        if before != new_value {
            let (field, reason) = (field.to_owned(), String::new());
            let original_value = Some(before);
            edits.push(PlanAdjustment { field, original_value, new_value, reason });
        }
    };
    let texts = [
        ("summary", &old.summary),
        ("approach", &old.approach),
        ("testing_strategy", &old.testing_strategy),
    ];
    for (name, before) in texts {
        let now = fields.text(name);
        // The form trims texts; that alone is not an edit.
        if now != before.trim() {
            edit(name, json!(before), json!(now));
        }
    }
    let lists = [
        ("criteria", &old.criteria),
        ("assumptions", &old.assumptions),
        ("questions", &old.questions),
        ("risks", &old.risks),
        ("test_changes", &old.test_changes),
        ("dependencies", &old.dependencies),
    ];
    for (name, before) in lists {
        edit(name, json!(before), json!(fields.lines(name)));
    }
    let files = form_files(fields)?;
    let is_same = |(one, other): (&FileChange, &FileChange)| {
        (&one.path, one.action, one.estimated_lines)
            == (&other.path, other.action, other.estimated_lines)
            && one.description.trim() == other.description.trim()
    };
    if files.len() != old.file_changes.len() || !files.iter().zip(&old.file_changes).all(is_same) {
        edit("file_changes", json!(old.file_changes), json!(files));
    }
    Ok(edits)
}

/// Describes an edited field for the planner.
fn describe_adjustment(edit: &PlanAdjustment) -> String {
    let field = &edit.field;
    match &edit.new_value {
        Value::String(text) => format!("Set `{field}` to:\n{text}"),
        Value::Array(items) if items.is_empty() => format!("Set `{field}` to an empty list."),
        value => {
            let text = serde_json::to_string_pretty(value).unwrap_or_default();
            format!("Set `{field}` to exactly:\n{text}")
        }
    }
}

fn form_files(fields: &FormFields) -> Result<Vec<FileChange>, Error> {
    let (paths, actions) = (fields.all("path"), fields.all("file_action"));
    let (lines, descriptions) = (fields.all("estimated_lines"), fields.all("file_description"));
    let mut files = Vec::new();
    for (at, path) in paths.into_iter().enumerate() {
        if path.is_empty() {
            continue;
        }
        let of =
            |list: &[String]| list.get(at).map(|text| text.trim().to_owned()).unwrap_or_default();
        let invalid = |what: &str, value: &str| {
            let detail = format!("`{value}` is not {what} for `{path}`.");
            Error::invalid(detail, "Correct it, then send the form again.")
        };
        let (action, estimate) = (of(&actions), of(&lines));
        files.push(FileChange {
            action: action.parse().map_err(|_| invalid("an action", &action))?,
            estimated_lines: match estimate.as_str() {
                "" => 0,
                text => text.parse().map_err(|_| invalid("a number of lines", text))?,
            },
            description: of(&descriptions),
            path: path.trim().to_owned(),
        });
    }
    Ok(files)
}
