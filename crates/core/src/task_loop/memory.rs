//! What the machine remembers of one task.
//!
//! It is small on purpose: identifiers, counters and references. A platform holds millions of
//! these, and a history replays them from the first event on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{JobKind, State, Timestamp};
use crate::approval::{Approval, Binding, Check, Pin};
use crate::budget::{Grant, Spend};
use crate::cause::{Cause, Stage};
use crate::cost::Usd;
use crate::council::{Opinion, Place};
use crate::escalation::Decision;
use crate::ids::{CommitId, Name, PlanHash, ProjectId, Reference, TaskId};
use crate::level::Level;
use crate::plan::Outline;
use crate::rules::Rules;
use crate::stuck::Attempt;
use crate::task::Priority;
use crate::tier::Tier;
use crate::version::{Edition, Format};

/// Everything the machine remembers of one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLoop {
    /// The version of this form.
    pub format: Format,
    /// The behaviour it was started with.
    pub edition: Edition,
    /// The task.
    pub task: TaskId,
    /// Its project.
    pub project: ProjectId,
    /// Its priority.
    pub priority: Priority,

    /// Where it is.
    pub state: State,
    /// Since when.
    pub since: Timestamp,
    /// Whether it is paused, beside its state.
    pub paused: Option<Pause>,
    /// How long it has been where it is, as the soft timeout counts.
    pub clock: Clock,
    /// How many entries it has written to the log.
    pub entries: u64,

    /// Base and rules.
    pub pin: Option<Pin>,
    /// The plan it brought.
    pub brought: Option<Reference>,
    /// The current plan.
    pub plan: Option<Outline>,
    /// What the next plan must take into account.
    pub note: Option<Reference>,
    /// What the check of the current plan came to.
    pub check: Option<Check>,
    /// The plan for which a person lifted a prohibition.
    pub overridden: Option<PlanHash>,
    /// Who has approved so far.
    pub approvals: Vec<Approval>,
    /// What may run.
    pub approved: Option<Binding>,

    /// How many jobs there have been.
    pub tickets: u32,
    /// The job that is under way.
    pub work: Option<Work>,
    /// The job that was told to stop because the task has gone elsewhere. Nothing starts before it
    /// has ended.
    pub leaving: Option<Work>,
    /// When the next job may start.
    pub not_before: Option<Timestamp>,
    /// The quota it waits for.
    pub quota: Option<Quota>,

    /// The tier of the next run.
    pub tier: Tier,
    /// Failures in a row in that tier.
    pub tier_failures: u8,
    /// How often the plan has been adjusted.
    pub retries: u8,
    /// How often the council has been asked.
    pub councils: u8,
    /// How many runs have been finished.
    pub iterations: u16,
    /// Timeouts of a run in a row.
    pub timeouts: u8,
    /// Failures of the work of a state itself, in a row.
    pub failures: BTreeMap<State, u8>,
    /// The last attempts, as many as are compared.
    pub attempts: Vec<Attempt>,
    /// What was decided after the last failure.
    pub decision: Option<Decision>,
    /// What failed, for the next run.
    pub brief: Option<Reference>,
    /// What the members of the council have said so far, in the order of their seats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opinions: Vec<Opinion>,

    /// The change under review.
    pub commit: Option<CommitId>,
    /// Whether an engine has ever worked on it, so that there may be something to lose.
    pub touched: bool,
    /// Whether that still has to be landed.
    pub to_land: bool,

    /// What it has spent.
    pub spend: Spend,
    /// What the dearest run so far has cost.
    pub dearest_run: Option<Usd>,
    /// What people have granted.
    pub granted: Grant,
    /// Whether people were warned of the budget.
    pub cost_warned: bool,

    /// How many questions it has asked.
    pub questions: u32,
    /// The question that is open.
    pub question: Option<Question>,
}

/// A pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Who paused it.
    pub by: Name,
    /// When.
    pub at: Timestamp,
}

/// How long a task has been where it is. A pause does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// From when it counts.
    pub from: Timestamp,
    /// How far it has come.
    pub stage: Stage,
}

/// A job that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Its number.
    pub ticket: u32,
    /// What it is.
    pub kind: JobKind,
    /// The earliest it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// What was set aside for it.
    pub reserved: Usd,
    /// Whether it was told to stop.
    pub stopping: bool,
}

/// A provider's quota that is used up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Which provider.
    pub provider: Name,
    /// Until when.
    pub until: Timestamp,
}

/// A question that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Its number.
    pub number: u32,
    /// Why it is asked.
    pub cause: Cause,
    /// When it was asked.
    pub at: Timestamp,
    /// How often it has been repeated.
    pub reminders: u32,
    /// Who has seen it; then it is not repeated.
    pub seen_by: Option<Name>,
    /// Where the task was.
    pub from: State,
    /// Where it goes on, if that is the answer.
    pub resume: State,
    /// What an agent asks, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<Reference>,
    /// What is taken for the answer when nobody gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Reference>,
}

impl TaskLoop {
    /// What an approval would be bound to now.
    pub fn binding(&self) -> Option<Binding> {
        Some(Binding { plan: self.plan.as_ref()?.hash, pin: self.pin? })
    }

    /// Whether the current plan may run.
    pub fn is_approved(&self) -> bool {
        self.approved.is_some() && self.approved == self.binding()
    }

    /// The level of risk of the current plan, if it has been checked.
    pub fn risk(&self) -> Option<Level> {
        self.check.as_ref().map(|check| check.risk.level)
    }

    /// Whose turn it is in the council, where it sits seat by seat.
    pub fn place(&self, rules: &Rules) -> Option<Place> {
        let said = self.opinions.len();
        match self.edition {
            Edition::November2026 => None,
            Edition::Review2026 | Edition::Knowledge2026 => {
                let member = u8::try_from(said).ok().filter(|_| said < rules.council.members.len());
                Some(member.map_or(Place::Chair, Place::Member))
            }
        }
    }

    /// How many runs the task may have.
    pub fn max_iterations(&self, rules: &Rules) -> u16 {
        rules.scrum_master.task_loop.max_iterations.saturating_add(self.granted.iterations)
    }

    /// How often the work of the current state has failed in a row.
    pub fn failures_here(&self) -> u8 {
        self.failures.get(&self.state).copied().unwrap_or_default()
    }

    /// When the next stage of the soft timeout comes, and which.
    pub fn next_stage(&self, rules: &Rules) -> Option<(Timestamp, Stage)> {
        let minutes = self.state.soft_timeout(&rules.scrum_master.task_loop.state_timeouts)?;
        let (stage, percent) = self.clock.stage.following()?;
        let seconds = i64::from(minutes) * 60 * i64::from(percent) / 100;
        // Waiting for a quota is nobody's delay.
        let from =
            self.quota.as_ref().map_or(self.clock.from, |quota| quota.until.max(self.clock.from));
        Some((from.checked_add_signed(chrono::TimeDelta::seconds(seconds))?, stage))
    }

    /// When the open question is to be asked again.
    pub fn next_reminder(&self, rules: &Rules) -> Option<Timestamp> {
        let question = self.question.as_ref().filter(|question| question.seen_by.is_none())?;
        let minutes = i64::from(rules.scrum_master.user_interaction.auto_timeout_minutes);
        let times = i64::from(question.reminders) + 1;
        question.at.checked_add_signed(chrono::TimeDelta::minutes(minutes.checked_mul(times)?))
    }

    /// When the open question answers itself: only what an agent asks, and only where it said what
    /// to take when nobody answers. A person who has seen it is waited for.
    pub fn default_at(&self, rules: &Rules) -> Option<Timestamp> {
        let question = self.question.as_ref().filter(|question| question.seen_by.is_none())?;
        question.default.as_ref()?;
        let minutes = i64::from(rules.scrum_master.user_interaction.default_after_minutes);
        question.at.checked_add_signed(chrono::TimeDelta::minutes(minutes))
    }

    /// When the machine wants to be told that time has passed.
    pub fn wake_at(&self, rules: &Rules) -> Option<Timestamp> {
        if self.paused.is_some() || self.state.is_terminal() {
            return None;
        }
        let stage = self.next_stage(rules).map(|(at, _)| at);
        [stage, self.next_reminder(rules), self.default_at(rules)].into_iter().flatten().min()
    }
}
