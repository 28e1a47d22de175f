//! History entries as terminal lines.

use anstyle::AnsiColor;
use chrono::{DateTime, FixedOffset, Utc};
use tamma_core::actor::Actor;
use tamma_core::approval::PlanAssessment;
use tamma_core::cost::Usd;
use tamma_core::history::{EntryData, EntryName, HistoryEntry};
use tamma_core::plan::PlanSummary;
use tamma_core::task::TaskEdit;
use tamma_core::task_loop::Phase;

use crate::output::{pluralize, sanitize};
use crate::style::{
    FAINT, STRONG, format_time, format_usd, humanize, paint, phase_colour, push_fmt, styled,
};

/// Formats an entry as one line: time, symbol, phase, event, person and reason.
pub(crate) fn format_entry(entry: &HistoryEntry, zone: FixedOffset) -> String {
    let mut text = format_line(glyph(entry.name), entry.at, entry.to.phase(), zone);
    match &entry.data {
        EntryData::Plan(plan) if entry.name == EntryName::SmPlanGenerated => {
            text += &plan_ready(plan);
        }
        EntryData::Check(check) => {
            push_fmt(&mut text, format_args!("plan checked: {}", format_assessment(check)));
        }
        data => {
            text += &headline(entry);
            if let Some(fact) = format_entry_data(data) {
                push_fmt(&mut text, format_args!(" {}", styled(&fact, STRONG)));
            }
        }
    }
    if let Actor::Person(name) = &entry.actor {
        push_fmt(&mut text, format_args!(" by {}", sanitize(name.as_str())));
    }
    if let Some(reason) = &entry.reason {
        text += &styled(&format!(": {}", sanitize(reason)), FAINT);
    }
    text
}

/// Formats a new plan and its check as one line.
pub(super) fn format_checked_plan(
    plan: &PlanSummary,
    checked: &HistoryEntry,
    zone: FixedOffset,
) -> Option<String> {
    let EntryData::Check(check) = &checked.data else { return None };
    let start = format_line(glyph(checked.name), checked.at, checked.to.phase(), zone);
    Some(format!("{start}{}, {}", plan_ready(plan), format_assessment(check)))
}

/// Start of a line: time, symbol and phase.
pub(super) fn format_line(
    (glyph, tone): (&str, AnsiColor),
    at: DateTime<Utc>,
    phase: Phase,
    zone: FixedOffset,
) -> String {
    let time = styled(&format_time(at, zone), FAINT);
    let name = paint(&format!("{:<12}", phase.label()), phase_colour(phase));
    format!("{time} {} {name} ", paint(glyph, tone))
}

fn plan_ready(plan: &PlanSummary) -> String {
    let files = pluralize(plan.file_count.into(), "file");
    format!("plan {} ready ({}): {files}", plan.version, plan.hash.short())
}

fn format_assessment(check: &PlanAssessment) -> String {
    let mut text = format!("{} risk", check.risk.level);
    for (number, noun) in [(check.blockers, "blocker"), (check.warnings, "warning")] {
        if number > 0 {
            push_fmt(&mut text, format_args!(", {}", pluralize(number.into(), noun)));
        }
    }
    text
}

/// Returns the event in words. A plain transition is described by its target state.
fn headline(entry: &HistoryEntry) -> String {
    if entry.name == EntryName::SmStateTransition {
        return entry.to.label().to_owned();
    }
    entry.name.label()
}

fn glyph(name: EntryName) -> (&'static str, AnsiColor) {
    use EntryName as N;
    match name {
        N::SmPlanInvalid
        | N::SmImplementationFailed
        | N::SmGatesFailed
        | N::SmReviewFailed
        | N::SmDeliveryFailed
        | N::SmPullRequestClosed
        | N::SmApprovalDenied
        | N::SmTaskFailed
        | N::SmTaskCancelled
        | N::SmErrorOccurred => ("✖", AnsiColor::Red),
        N::SmApprovalAuto
        | N::SmApprovalGranted
        | N::SmImplementationCompleted
        | N::SmReviewPassed
        | N::SmDelivered
        | N::SmTaskCompleted => ("✔", AnsiColor::Green),
        N::SmApprovalRequested | N::SmAlertSent | N::SmQuestionAsked => ("?", AnsiColor::Yellow),
        N::SmTimeoutWarning
        | N::SmTimeoutAlert
        | N::SmTimeoutEscalated
        | N::SmQuotaReached
        | N::SmPlanDisputed
        | N::SmSecondReviewRequested
        | N::SmTaskReconciled
        | N::SmApprovalVoided => ("!", AnsiColor::Yellow),
        N::SmTaskPaused => ("‖", AnsiColor::Yellow),
        N::SmTaskReceived
        | N::SmTaskAssigned
        | N::SmPlanStarted
        | N::SmPlanGenerated
        | N::SmPlanAdjusted
        | N::SmKnowledgeChecked
        | N::SmChangesRequested
        | N::SmOverridden
        | N::SmImplementationStarted
        | N::SmImplementationProgress
        | N::SmReviewStarted
        | N::SmDecisionMade
        | N::SmCouncilConvened
        | N::SmCouncilOpinion
        | N::SmCouncilMemberAbsent
        | N::SmCouncilConcluded
        | N::SmLearningCaptured
        | N::SmWorkLanded
        | N::SmAlertAcknowledged
        | N::SmQuestionAnswered
        | N::SmTaskResumed
        | N::SmTaskModified
        | N::SmTaskEdited
        | N::SmTaskRetried
        | N::SmRolledBack
        | N::SmSkipped
        | N::SmPullRequestOpened
        | N::SmPullRequestUpdated
        | N::SmFeedbackReceived
        | N::SmRebased
        | N::SmHeadAdopted
        | N::SmTaskRated
        | N::SmStateTransition => ("●", AnsiColor::Blue),
    }
}

/// Formats the data of an entry, or returns `None` if there is nothing to add.
fn format_entry_data(fact: &EntryData) -> Option<String> {
    Some(match fact {
        EntryData::None | EntryData::Stored(_) => return None,
        EntryData::Decision(decision) => decision.to_string(),
        EntryData::Opinion { member, .. } => format!("from {member}"),
        EntryData::Pin(pin) => format!("at {}", short_hash(&pin.base.to_string())),
        EntryData::Plan(plan) | EntryData::Adjusted { plan, .. } => {
            let files = pluralize(plan.file_count.into(), "file");
            format!("{} (plan {}), {files}", plan.hash.short(), plan.version)
        }
        EntryData::Check(check) => format_assessment(check),
        EntryData::Approval { scope, risk } => {
            format!("{} ({risk} risk)", scope.plan.short())
        }
        EntryData::Commit(commit) => short_hash(&commit.to_string()),
        EntryData::Agent(agent) => format!("with {}", sanitize(agent.as_str())),
        EntryData::Failure(kind) => humanize(kind),
        EntryData::Gates(gates) if gates.passed == 0 && gates.failed == 0 => "no gates".to_owned(),
        EntryData::Gates(gates) => format!("{} passed, {} failed", gates.passed, gates.failed),
        EntryData::Review(summary) => format!("score {}", summary.score),
        EntryData::Cause(cause) => cause.to_string(),
        EntryData::Grant(grant) if grant.iterations == 0 && grant.usd == Usd::ZERO => return None,
        EntryData::Grant(grant) => {
            format!("{}, {} more", pluralize(grant.iterations.into(), "run"), format_usd(grant.usd))
        }
        EntryData::Lessons(0) => "no lessons".to_owned(),
        EntryData::Lessons(lessons) => pluralize((*lessons).into(), "lesson"),
        EntryData::Spend(spend) => format_usd(spend.usd),
        EntryData::PullRequest(stage) => stage.description().to_owned(),
        EntryData::Rating(stars) => format!("{stars} of 5"),
        EntryData::Edited(edit) => format_edit(edit),
    })
}

/// Formats the new title, priority and labels of a task.
fn format_edit(edit: &TaskEdit) -> String {
    let title = edit.title.as_deref().map(|title| format!("title {}", sanitize(title)));
    let priority = edit.priority.map(|priority| format!("priority {priority}"));
    let labels = edit.labels.as_ref().map(|labels| match labels.as_slice() {
        [] => "no labels".to_owned(),
        labels => format!("labels {}", sanitize(&labels.join(", "))),
    });
    title.into_iter().chain(priority).chain(labels).collect::<Vec<_>>().join("; ")
}

fn short_hash(hash: &str) -> String {
    hash.chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(fields: &serde_json::Value) -> HistoryEntry {
        let mut entry = json!({
            "format": 1,
            "task": "0192a000-0000-7000-8000-000000000001",
            "sequence": 3,
            "at": "2026-11-15T10:20:30Z",
            "actor": "tamma",
        });
        let fields = fields.as_object().expect("an object").clone();
        entry.as_object_mut().expect("an object").extend(fields);
        serde_json::from_value(entry).expect("an entry")
    }

    fn render(fields: &serde_json::Value) -> String {
        let zone = FixedOffset::east_opt(3600).expect("a zone");
        anstream::adapter::strip_str(&format_entry(&entry(fields), zone)).to_string()
    }

    #[test]
    fn a_transition_shows_the_phase_and_the_commit() {
        let text = render(&json!({
            "name": "SM_IMPLEMENTATION_COMPLETED", "from": "in_progress", "to": "testing",
            "on": "run_finished", "data": { "commit": "0123456789abcdef0123456789abcdef01234567" },
        }));
        assert_eq!(text, "11:20:30 ✔ Review       implementation completed 0123456789ab");
    }

    #[test]
    fn a_plan_and_its_check_can_share_a_line() {
        let hash = "7264af2fc1bd".repeat(6).get(..64).expect("64 digits").to_owned();
        let plan: PlanSummary = serde_json::from_value(json!({
            "hash": hash, "version": 1, "kept_at": "plans/1", "files": 1, "critical_files": 0,
            "complexity": 2,
        }))
        .expect("a plan");
        let checked = entry(&json!({
            "name": "SM_KNOWLEDGE_CHECKED", "from": "awaiting_approval", "to": "awaiting_approval",
            "data": { "check": {
                "risk": { "level": "low", "score": 0, "factors": [] }, "blockers": 0, "warnings": 1,
            } },
        }));
        let zone = FixedOffset::east_opt(0).expect("a zone");
        let line = format_checked_plan(&plan, &checked, zone).expect("a line");
        assert_eq!(
            anstream::adapter::strip_str(&line).to_string(),
            "10:20:30 ● Approval     plan 1 ready (7264af2fc1bd): 1 file, low risk, 1 warning"
        );
    }

    #[test]
    fn the_person_and_the_reason_are_shown() {
        let text = render(&json!({
            "name": "SM_TASK_CANCELLED", "from": "planning", "to": "cancelled", "on": "cancelled",
            "actor": { "person": "Ada" }, "reason": "not needed",
        }));
        assert_eq!(text, "11:20:30 ✖ Done         task cancelled by Ada: not needed");
    }

    #[test]
    fn control_characters_in_reasons_are_escaped() {
        let text = render(&json!({
            "name": "SM_ERROR_OCCURRED", "from": "planning", "to": "planning",
            "reason": "bad \u{1b}[2J thing",
        }));
        assert_eq!(text, "11:20:30 ✖ Planning     error occurred: bad \\u{1b}[2J thing");
    }
}
