//! One entry of the log as one line.

use anstyle::AnsiColor;
use chrono::FixedOffset;
use tamma_core::actor::Actor;
use tamma_core::cost::Usd;
use tamma_core::log::{Entry, EntryName, Fact};

use crate::look::{FAINT, STRONG, add, clock, colour, dollars, paint, styled, words};
use crate::output::{counted, plain};

/// One entry as one line: when, how it went, where, what, and why.
pub(crate) fn line(entry: &Entry, zone: FixedOffset) -> String {
    let (glyph, tone) = glyph(entry.name);
    let time = styled(&clock(entry.at, zone), FAINT);
    let phase = entry.to.phase();
    let phase = paint(&format!("{:<9}", phase.to_string()), colour(phase));
    let mut text = format!("{time} {} {phase} {}", paint(glyph, tone), headline(entry));
    if let Some(fact) = fact(&entry.data) {
        add(&mut text, format_args!(" {}", styled(&fact, STRONG)));
    }
    if let Actor::Person(name) = &entry.actor {
        add(&mut text, format_args!(" by {}", plain(name.as_str())));
    }
    if let Some(reason) = &entry.reason {
        text += &styled(&format!(": {}", plain(reason)), FAINT);
    }
    text
}

/// What happened, in words; a mere transition is told by where it leads.
fn headline(entry: &Entry) -> String {
    if entry.name == EntryName::SmStateTransition {
        return format!("to {}", words(&entry.to));
    }
    if entry.name == EntryName::SmApprovalAuto {
        return "approved automatically".to_owned();
    }
    let name = entry.name.to_string().to_lowercase();
    words(&name.strip_prefix("sm_").unwrap_or(&name))
}

fn glyph(name: EntryName) -> (&'static str, AnsiColor) {
    use EntryName as N;
    match name {
        N::SmPlanInvalid
        | N::SmImplementationFailed
        | N::SmGatesFailed
        | N::SmReviewFailed
        | N::SmDeliveryFailed
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
        | N::SmTaskRetried
        | N::SmRolledBack
        | N::SmSkipped
        | N::SmTaskRated
        | N::SmStateTransition => ("●", AnsiColor::Blue),
    }
}

/// The fact of an entry, in a few words.
fn fact(fact: &Fact) -> Option<String> {
    Some(match fact {
        Fact::None | Fact::Kept(_) => return None,
        Fact::Decision(decision) => decision.to_string(),
        Fact::Opinion { seat, .. } => format!("of {seat}"),
        Fact::Pin(pin) => format!("on {}", short(&pin.base.to_string())),
        Fact::Plan(plan) => {
            let files = counted(plan.files.into(), "file");
            format!("{} version {}, {files}", plan.hash.short(), plan.version)
        }
        Fact::Check(check) => {
            let mut text = format!("{} risk", check.risk.level);
            if check.blockers > 0 {
                add(&mut text, format_args!(", {}", counted(check.blockers.into(), "blocker")));
            }
            if check.warnings > 0 {
                add(&mut text, format_args!(", {}", counted(check.warnings.into(), "warning")));
            }
            text
        }
        Fact::Approval { binding, risk } => format!("{} ({risk} risk)", binding.plan.short()),
        Fact::Commit(commit) => short(&commit.to_string()),
        Fact::Engine(engine) => format!("with {}", plain(engine.as_str())),
        Fact::Failure(kind) => words(kind),
        Fact::Gates(gates) if gates.passed == 0 && gates.failed == 0 => "no gates".to_owned(),
        Fact::Gates(gates) => format!("{} passed, {} failed", gates.passed, gates.failed),
        Fact::Review(summary) => format!("score {}", summary.score),
        Fact::Cause(cause) => cause.to_string(),
        Fact::Grant(grant) if grant.iterations == 0 && grant.usd == Usd::ZERO => return None,
        Fact::Grant(grant) => {
            format!("{}, {} more", counted(grant.iterations.into(), "run"), dollars(grant.usd))
        }
        Fact::Lessons(0) => "no lessons".to_owned(),
        Fact::Lessons(lessons) => counted((*lessons).into(), "lesson"),
        Fact::Spend(spend) => dollars(spend.usd),
        Fact::Rating(stars) => format!("{stars} of 5"),
    })
}

fn short(hash: &str) -> String {
    hash.chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(fields: &serde_json::Value) -> Entry {
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

    fn shown(fields: &serde_json::Value) -> String {
        let zone = FixedOffset::east_opt(3600).expect("a zone");
        anstream::adapter::strip_str(&line(&entry(fields), zone)).to_string()
    }

    #[test]
    fn a_transition_says_where_it_leads_and_what_was_made() {
        let text = shown(&json!({
            "name": "SM_IMPLEMENTATION_COMPLETED", "from": "in_progress", "to": "testing",
            "on": "run_finished", "data": { "commit": "0123456789abcdef0123456789abcdef01234567" },
        }));
        assert_eq!(text, "11:20:30 ✔ Review    implementation completed 0123456789ab");
    }

    #[test]
    fn who_did_it_and_why_are_told() {
        let text = shown(&json!({
            "name": "SM_TASK_CANCELLED", "from": "planning", "to": "cancelled", "on": "cancelled",
            "actor": { "person": "Ada" }, "reason": "not needed",
        }));
        assert_eq!(text, "11:20:30 ✖ Done      task cancelled by Ada: not needed");
    }

    #[test]
    fn what_others_wrote_does_not_command_the_terminal() {
        let text = shown(&json!({
            "name": "SM_ERROR_OCCURRED", "from": "planning", "to": "planning",
            "reason": "bad \u{1b}[2J thing",
        }));
        assert_eq!(text, "11:20:30 ✖ Plan      error occurred: bad \\u{1b}[2J thing");
    }
}
