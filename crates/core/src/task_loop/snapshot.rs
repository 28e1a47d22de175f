//! State of one task, as data.
//!
//! It holds only identifiers, counters and references, so that it stays small. An installation has
//! millions of them, and replaying a history rebuilds each one from its first event.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{JobKind, State, Timestamp};
use crate::approval::{Approval, ApprovalScope, Pin, PlanAssessment};
use crate::budget::{Grant, Spend};
use crate::cause::{AlertCause, PullRequestProblem, TimeoutStage};
use crate::cost::Usd;
use crate::council::{CouncilSeat, OpinionRecord};
use crate::escalation::EscalationDecision;
use crate::ids::{CommitId, Name, PlanHash, ProjectId, Reference, TaskId};
use crate::level::RiskLevel;
use crate::plan::PlanSummary;
use crate::pull_request::{PullRequestState, no_checks_at};
use crate::reconciliation::StoredPosition;
use crate::rules::{DeliveryMode, Rules};
use crate::stuck::AttemptRecord;
use crate::task::Priority;
use crate::tier::Tier;
use crate::version::{Edition, FormatVersion};

/// Complete state of one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLoop {
    /// Format version of the state.
    pub format: FormatVersion,
    /// Edition that the task started with.
    pub edition: Edition,
    /// Task ID.
    pub task: TaskId,
    /// Project of the task.
    pub project: ProjectId,
    /// Priority of the task.
    pub priority: Priority,

    /// Current state.
    pub state: State,
    /// Time of the last state change.
    pub since: Timestamp,
    /// Pause, if the task is paused. The state is kept meanwhile.
    pub paused: Option<Pause>,
    /// Clock of the soft timeout.
    pub clock: StateClock,
    /// Number of history entries written so far.
    #[serde(rename = "entries")]
    pub entry_count: u64,

    /// Base commit and rules; `None` until the task is prepared.
    pub pin: Option<Pin>,
    /// Plan submitted with the task.
    #[serde(rename = "brought")]
    pub submitted_plan: Option<Reference>,
    /// Current plan.
    pub plan: Option<PlanSummary>,
    /// Input for the next plan or brief.
    pub note: Option<Reference>,
    /// Risk and knowledge check of the current plan.
    #[serde(rename = "check")]
    pub plan_assessment: Option<PlanAssessment>,
    /// Plan whose prohibitions a person has overridden.
    #[serde(rename = "overridden")]
    pub overridden_plan: Option<PlanHash>,
    /// Approvals of the current plan so far.
    pub approvals: Vec<Approval>,
    /// Scope that is approved to run.
    #[serde(rename = "approved")]
    pub approved_scope: Option<ApprovalScope>,

    /// Number of the last job.
    #[serde(rename = "tickets")]
    pub last_job_number: u32,
    /// Job in progress.
    #[serde(rename = "work")]
    pub active_job: Option<ActiveJob>,
    /// Job that is being stopped because the task moved on. No job starts before it has ended.
    #[serde(rename = "leaving")]
    pub stopping_job: Option<ActiveJob>,
    /// Earliest start of the next job.
    pub not_before: Option<Timestamp>,
    /// Quota that the task is waiting for.
    pub quota: Option<ProviderQuota>,
    /// Restarts after the loss of a workflow, since the last finished job.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts: u8,

    /// Tier of the next run.
    pub tier: Tier,
    /// Consecutive failures in that tier.
    pub tier_failures: u8,
    /// Plan revisions after failed reviews.
    pub retries: u8,
    /// Councils held.
    pub councils: u8,
    /// Finished runs.
    pub iterations: u16,
    /// Consecutive timeouts of runs.
    pub timeouts: u8,
    /// Consecutive failures of the jobs of each state.
    pub failures: BTreeMap<State, u8>,
    /// Last attempts, as many as are compared.
    pub attempts: Vec<AttemptRecord>,
    /// Decision after the last failure.
    pub decision: Option<EscalationDecision>,
    /// Failure brief for the next run.
    pub brief: Option<Reference>,
    /// Opinions of the council so far, in the order of its members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opinions: Vec<OpinionRecord>,
    /// Call of the current council.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub council: Option<CouncilCall>,
    /// Conclusion of a council about a plan, for the planner if a person asks for a revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guidance: Option<Reference>,

    /// Commit under review.
    pub commit: Option<CommitId>,
    /// Stored verdict of a validator whose critical finding a second validator has to confirm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconfirmed: Option<Reference>,
    /// Memory about the task's pull request, once it was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<Box<PullRequestState>>,
    /// An agent has worked on the task, so there may be work to save.
    #[serde(rename = "touched")]
    pub has_work: bool,
    /// That work still has to be saved.
    #[serde(rename = "to_land")]
    pub must_save_work: bool,

    /// Total spend.
    pub spend: Spend,
    /// Cost of the most expensive run.
    #[serde(rename = "dearest_run")]
    pub max_run_cost: Option<Usd>,
    /// Extra runs, dollars and tokens that people granted.
    pub granted: Grant,
    /// People were warned about the budget.
    pub cost_warned: bool,

    /// Number of questions asked so far.
    #[serde(rename = "questions")]
    pub question_count: u32,
    /// Open question.
    #[serde(rename = "question")]
    pub open_question: Option<OpenQuestion>,
    /// Last question that was answered while its run waited. The run may have given up just before
    /// the answer came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_live: Option<Reference>,
    /// Ratings of a closed task, 1 to 5, by person.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ratings: BTreeMap<Name, u8>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

/// Pause of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Person who paused the task.
    pub by: Name,
    /// Time of the pause.
    pub at: Timestamp,
}

/// Clock of the soft timeout of a state. Pauses do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateClock {
    /// Start, moved forward by each pause.
    #[serde(rename = "from")]
    pub started_at: Timestamp,
    /// Threshold reached so far.
    pub stage: TimeoutStage,
}

/// Call of a council.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CouncilCall {
    /// State to which the task returns.
    #[serde(rename = "return")]
    pub return_state: State,
    /// Stored question of the person who convened the council.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Reference>,
}

/// Job in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveJob {
    /// Sequence number of the job.
    #[serde(rename = "ticket")]
    pub job_number: u32,
    /// Kind of the job.
    pub kind: JobKind,
    /// Earliest start of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// Cost reserved for the job.
    #[serde(rename = "reserved")]
    pub reserved_cost: Usd,
    /// A stop was requested.
    pub stopping: bool,
}

/// Provider quota that is used up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderQuota {
    /// Provider of the quota.
    pub provider: Name,
    /// Time of the reset.
    pub until: Timestamp,
}

/// Question that is waiting for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenQuestion {
    /// Sequence number within the task.
    pub number: u32,
    /// Reason for the question.
    pub cause: AlertCause,
    /// Time of the question, moved forward by each pause.
    #[serde(rename = "at")]
    pub asked_at: Timestamp,
    /// Number of reminders sent.
    pub reminders: u32,
    /// Person who has seen the question, which stops the reminders.
    pub seen_by: Option<Name>,
    /// State in which the question arose.
    #[serde(rename = "from")]
    pub from_state: State,
    /// State in which work continues if a person says so.
    #[serde(rename = "resume")]
    pub resume_state: State,
    /// Stored text of an agent's question.
    #[serde(rename = "about", default, skip_serializing_if = "Option::is_none")]
    pub agent_question: Option<Reference>,
    /// Answer to use if nobody answers in time.
    #[serde(rename = "default", default, skip_serializing_if = "Option::is_none")]
    pub default_answer: Option<Reference>,
    /// The run that asked is still waiting, and an answer changes no state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub live: bool,
    /// The answer can be to convene the council.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub council: bool,
}

impl TaskLoop {
    /// Returns the position that a reconciliation compares with the workflow.
    pub fn position(&self, step: u64) -> StoredPosition {
        StoredPosition {
            state: self.state,
            step,
            has_job: self.active_job.is_some(),
            restarts: self.restarts,
        }
    }

    /// Returns `true` if a job with this number is active or being stopped.
    pub fn has_job(&self, job_number: u32) -> bool {
        let jobs = [self.active_job, self.stopping_job];
        jobs.into_iter().flatten().any(|job| job.job_number == job_number)
    }

    /// Returns `true` if two states differ at most in their times. A step that is applied again
    /// after a crash has a later time.
    pub fn is_same_except_times(&self, other: &Self) -> bool {
        self.without_times() == other.without_times()
    }

    fn without_times(&self) -> Self {
        let mut it = self.clone();
        it.since = Timestamp::UNIX_EPOCH;
        it.clock.started_at = Timestamp::UNIX_EPOCH;
        it.not_before = None;
        if let Some(pause) = &mut it.paused {
            pause.at = Timestamp::UNIX_EPOCH;
        }
        for approval in &mut it.approvals {
            approval.at = Timestamp::UNIX_EPOCH;
        }
        for job in [&mut it.active_job, &mut it.stopping_job].into_iter().flatten() {
            job.not_before = None;
        }
        if let Some(quota) = &mut it.quota {
            quota.until = Timestamp::UNIX_EPOCH;
        }
        if let Some(question) = &mut it.open_question {
            question.asked_at = Timestamp::UNIX_EPOCH;
        }
        it
    }

    /// Returns the scope that an approval would cover now.
    pub fn current_scope(&self) -> Option<ApprovalScope> {
        Some(ApprovalScope { plan: self.plan.as_ref()?.hash, pin: self.pin? })
    }

    /// Returns `true` if the current plan is approved in its current scope.
    pub fn is_approved(&self) -> bool {
        self.approved_scope.is_some() && self.approved_scope == self.current_scope()
    }

    /// Returns the risk level of the current plan, or `None` before its check.
    pub fn risk_level(&self) -> Option<RiskLevel> {
        self.plan_assessment.as_ref().map(|check| check.risk.level)
    }

    /// Returns the council seat to ask next; `None` in editions with a single council model.
    pub fn current_seat(&self, rules: &Rules) -> Option<CouncilSeat> {
        let opinion_count = self.opinions.len();
        match self.edition {
            Edition::November2026 => None,
            Edition::Review2026
            | Edition::Knowledge2026
            | Edition::Harness2026
            | Edition::Council2026 => {
                let member = u8::try_from(opinion_count)
                    .ok()
                    .filter(|_| opinion_count < rules.council.members.len());
                Some(member.map_or(CouncilSeat::Chair, CouncilSeat::Member))
            }
        }
    }

    /// Returns `true` if another council can be held.
    pub fn can_convene(&self, rules: &Rules) -> bool {
        self.edition.has_council_for_every_state()
            && self.pin.is_some()
            && self.councils < rules.scrum_master.task_loop.max_councils
    }

    /// Returns `true` if the council reviews a plan before anything was tried with it.
    pub fn council_reviews_plan(&self) -> bool {
        self.iterations == 0
            && match self.council.as_ref().map(|call| call.return_state) {
                Some(State::AwaitingApproval) => true,
                Some(State::Planning) => self.plan.is_none() && self.submitted_plan.is_some(),
                _ => false,
            }
    }

    /// Returns the number of runs that the task may have.
    pub fn max_iterations(&self, rules: &Rules) -> u16 {
        rules.scrum_master.task_loop.max_iterations.saturating_add(self.granted.iterations)
    }

    /// Returns how often the jobs of the current state have failed in a row.
    pub fn state_failures(&self) -> u8 {
        self.failures.get(&self.state).copied().unwrap_or_default()
    }

    /// Returns the next threshold of the soft timeout and its time.
    pub fn next_timeout_stage(&self, rules: &Rules) -> Option<(Timestamp, TimeoutStage)> {
        let minutes = self.state.soft_timeout(&rules.scrum_master.task_loop.state_timeouts)?;
        let (stage, percent) = self.clock.stage.next_threshold()?;
        let seconds = i64::from(minutes) * 60 * i64::from(percent) / 100;
        // Waiting for a quota does not count towards the timeout.
        let from = self
            .quota
            .as_ref()
            .map_or(self.clock.started_at, |quota| quota.until.max(self.clock.started_at));
        Some((from.checked_add_signed(chrono::TimeDelta::seconds(seconds))?, stage))
    }

    /// Returns the time of the next reminder.
    pub fn next_reminder(&self, rules: &Rules) -> Option<Timestamp> {
        let question = self.open_question.as_ref().filter(|question| question.seen_by.is_none())?;
        let minutes = i64::from(rules.scrum_master.user_interaction.auto_timeout_minutes);
        let times = i64::from(question.reminders) + 1;
        question
            .asked_at
            .checked_add_signed(chrono::TimeDelta::minutes(minutes.checked_mul(times)?))
    }

    /// Returns the time at which the open question answers itself. Nobody may have seen it, and it
    /// must be an agent's question with a default answer, or about a closed pull request.
    pub fn default_answer_at(&self, rules: &Rules) -> Option<Timestamp> {
        let question = self.open_question.as_ref().filter(|question| question.seen_by.is_none())?;
        // A task whose pull request was closed ends by itself.
        if question.cause != AlertCause::PullRequest(PullRequestProblem::Closed) {
            question.default_answer.as_ref()?;
        }
        let minutes = i64::from(rules.scrum_master.user_interaction.default_after_minutes);
        question.asked_at.checked_add_signed(chrono::TimeDelta::minutes(minutes))
    }

    /// Returns the mode in which the current change is delivered.
    pub fn delivery_mode(&self, rules: &Rules) -> DeliveryMode {
        rules.delivery.mode_for(self.risk_level().unwrap_or_default())
    }

    /// Returns the time at which people are asked about a pull request without checks.
    fn no_checks_at(&self, rules: &Rules) -> Option<Timestamp> {
        let is_idle = self.active_job.is_none() && self.stopping_job.is_none();
        if self.state != State::AwaitingMerge || !is_idle {
            return None;
        }
        let memory = self.pull_request.as_ref().filter(|memory| !memory.facts_used)?;
        no_checks_at(
            memory,
            memory.facts.as_ref()?,
            self.delivery_mode(rules),
            &rules.delivery.pull_requests,
            self.clock.started_at,
        )
    }

    /// Returns the time of the next `EventKind::Tick` that the task needs.
    pub fn wake_at(&self, rules: &Rules) -> Option<Timestamp> {
        if self.paused.is_some() || self.state.is_terminal() {
            return None;
        }
        let stage = self.next_timeout_stage(rules).map(|(at, _)| at);
        let no_checks = self.no_checks_at(rules);
        [stage, self.next_reminder(rules), self.default_answer_at(rules), no_checks]
            .into_iter()
            .flatten()
            .min()
    }
}
