//! Pull requests: facts from the forge, outcomes of jobs about them, and people's answers.
//!
//! [`decide`] says what happens next. It is asked after every event, and only if the task has a pull
//! request, so tasks that deliver a branch never come here.

use super::StepBuilder;
use super::transitions::EntryReason;
use crate::cause::{AlertCause, PullRequestProblem};
use crate::escalation::{EscalationAction, EscalationDecision, EscalationReason};
use crate::forge::{MAX_FACTS, Mergeability, PullRequestFacts, PullRequestStatus};
use crate::history::{EntryData, EntryName};
use crate::ids::{CommitId, Reference};
use crate::pull_request::{
    MAX_STALE, OpenedPullRequest, PullRequestDecision, PullRequestJob, PullRequestOutcome,
    PullRequestStage, PullRequestState, QueueResult, decide, missing_checks, open_feedback,
    relevant_facts,
};
use crate::rules::MergeQueueMode;
use crate::task_loop::{JobKind, OpenQuestion, Outcome, Refusal, State, Timestamp, Trigger, table};

/// Most checks that a question names.
const MAX_NAMED_CHECKS: usize = 5;

/// Account that is named if the merge queue landed a change.
const QUEUE: &str = "the merge queue";

impl StepBuilder<'_> {
    /// Stores facts that the forge reports. [`Self::follow_pull_request`] acts on them.
    pub(super) fn pull_request_observed(
        &mut self,
        facts: &PullRequestFacts,
    ) -> Result<(), Refusal> {
        let rules = self.rules;
        let is_learning = self.task_loop.state == State::Learning;
        let Some(memory) = self
            .task_loop
            .pull_request
            .as_mut()
            .filter(|memory| !is_learning && memory.number == facts.number)
        else {
            return Err(Refusal::NoPullRequest);
        };
        let facts = Box::new(relevant_facts(facts, &rules.delivery.pull_requests));
        let was_merged = memory
            .facts
            .as_ref()
            .is_some_and(|it| matches!(it.status, PullRequestStatus::Merged { .. }));
        let is_known = memory.facts.as_ref() == Some(&facts) && !memory.facts_used;
        if was_merged || is_known {
            return Err(Refusal::FactsUnchanged);
        }
        let was_queued =
            memory.facts.as_ref().is_some_and(|it| it.queued && it.head == memory.pushed);
        // Tamma's own queue tells its results itself.
        let has_left = rules.delivery.queue.mode != MergeQueueMode::Tamma
            && memory.queued == Some(facts.head)
            && facts.status == PullRequestStatus::Open
            && !facts.queued
            && !facts.incomplete;
        memory.facts = Some(facts);
        memory.facts_used = false;
        if has_left {
            memory.queued = None;
            // Facts that are older than the entry do not show it. Then it is added again, which has no
            // effect if it is there.
            if was_queued {
                memory.refused = Some(memory.pushed);
            }
            let blocked = PullRequestDecision::Wait(PullRequestStage::Blocked);
            if self.task_loop.paused.is_none() && self.pull_request_decision() == Some(blocked) {
                return self.ask_about_pull_request(PullRequestProblem::Blocked);
            }
            return Ok(());
        }
        if self.task_loop.paused.is_none() && self.is_question_settled() {
            return self.return_to_pull_request();
        }
        Ok(())
    }

    /// Handles the end of the pull request's stay in the merge queue.
    pub(super) fn queue_settled(&mut self, result: &QueueResult) -> Result<(), Refusal> {
        let state = self.task_loop.state;
        let is_paused = self.task_loop.paused.is_some();
        let max_rounds = self.rules.delivery.pull_requests.max_rounds;
        let Some(memory) =
            self.task_loop.pull_request.as_mut().filter(|_| state != State::Learning)
        else {
            return Err(Refusal::NoPullRequest);
        };
        // A result of another head says nothing about this one.
        if result.head() != memory.pushed {
            return Err(Refusal::NotQueued);
        }
        match result {
            QueueResult::Landed { commit, .. } => {
                let status = PullRequestStatus::Merged { commit: *commit, by: QUEUE.to_owned() };
                let facts = merged_facts(memory, status);
                memory.facts = Some(Box::new(facts));
                memory.facts_used = false;
                Ok(())
            }
            QueueResult::Returned { head, log } => {
                let is_queued = memory.queued.take() == Some(*head);
                if !is_queued || state != State::AwaitingMerge {
                    return Err(Refusal::NotQueued);
                }
                if memory.rounds >= max_rounds {
                    memory.refused = Some(memory.pushed);
                    let data = EntryData::Stored(log.clone());
                    self.record_entry(EntryName::SmDeliveryFailed, None, data);
                    return self.ask_about_pull_request(PullRequestProblem::RoundsUsedUp);
                }
                self.send_back(log)
            }
            QueueResult::Left { head } => {
                if memory.queued != Some(*head) {
                    return Err(Refusal::NotQueued);
                }
                memory.queued = None;
                // The queue saw newer facts, or would refuse the same change again.
                memory.facts_used = true;
                if memory.count_stale() && state == State::AwaitingMerge && !is_paused {
                    memory.refused = Some(*head);
                    return self.ask_about_pull_request(PullRequestProblem::Blocked);
                }
                self.set_stage(PullRequestStage::Merging);
                Ok(())
            }
        }
    }

    /// Does what the facts about the pull request call for, except for starting a job.
    pub(super) fn follow_pull_request(&mut self) -> Result<(), Refusal> {
        let state = self.task_loop.state;
        let is_over = self.task_loop.pull_request.as_ref().is_some_and(|memory| memory.is_over());
        if self.task_loop.paused.is_some() || state.is_terminal() {
            return Ok(());
        }
        let can_return = table::allows(state, Trigger::PullRequestChanged, State::AwaitingMerge);
        if is_over && can_return && !self.asks_why_closed() {
            self.return_to_pull_request()?;
        }
        let Some(decision) = self.pull_request_decision() else { return Ok(()) };
        match decision {
            PullRequestDecision::Wait(stage) => self.set_stage(stage),
            PullRequestDecision::Start(job) => self.set_stage(job.stage()),
            PullRequestDecision::Ask(problem) => return self.ask_about_pull_request(problem),
            PullRequestDecision::Merged { commit, by } => {
                return self.pull_request_merged(commit, Some(format!("merged by {by}").into()));
            }
            PullRequestDecision::Closed { by } => {
                let cause = AlertCause::PullRequest(PullRequestProblem::Closed);
                let reason = Some(format!("closed by {by}").into());
                let resume = State::AwaitingMerge;
                return self.escalate_to_person(Trigger::PullRequestClosed, cause, resume, reason);
            }
        }
        Ok(())
    }

    /// Returns the decision about the pull request, or `None` while a job runs or facts are missing.
    pub(super) fn pull_request_decision(&self) -> Option<PullRequestDecision> {
        if self.task_loop.state != State::AwaitingMerge || self.task_loop.active_job.is_some() {
            return None;
        }
        let memory = self.task_loop.pull_request.as_ref().filter(|memory| !memory.facts_used)?;
        let facts = memory.facts.as_ref()?;
        Some(decide(
            memory,
            facts,
            self.task_loop.delivery_mode(self.rules),
            &self.rules.delivery.pull_requests,
            self.task_loop.clock.started_at,
            self.now,
        ))
    }

    /// Remembers the job about the pull request that starts.
    pub(super) fn pull_request_job_started(&mut self, job: &PullRequestJob) {
        if let Some(memory) = &mut self.task_loop.pull_request {
            memory.job = Some(Box::new(job.clone()));
            memory.facts_used = true;
        }
    }

    /// Lets the facts count again after a job, unless it found them stale.
    pub(super) fn pull_request_job_ended(&mut self, outcome: Option<&Outcome>) {
        let is_stale = matches!(outcome, Some(Outcome::PullRequest(PullRequestOutcome::Stale)));
        if let Some(memory) = self.task_loop.pull_request.as_mut().filter(|_| !is_stale) {
            memory.facts_used = false;
        }
    }

    /// Handles a delivery that opened or updated the pull request.
    pub(super) fn pull_request_opened(
        &mut self,
        opened: &OpenedPullRequest,
    ) -> Result<(), Refusal> {
        let judged = self.task_loop.commit.unwrap_or(opened.head);
        let verb = match &mut self.task_loop.pull_request {
            Some(memory) if memory.number == opened.number => {
                memory.update(opened, judged);
                "updated"
            }
            memory => {
                *memory = Some(Box::new(PullRequestState::new(opened, judged)));
                "opened"
            }
        };
        let reason = format!("pull request #{} {verb}: {}", opened.number, opened.url);
        let data = EntryData::Commit(opened.head);
        self.transition(Trigger::PullRequestOpened, State::AwaitingMerge, Some(reason.into()), data)
    }

    /// Handles the outcome of a job about the pull request.
    pub(super) fn pull_request_job_finished(
        &mut self,
        outcome: &PullRequestOutcome,
    ) -> Result<(), Refusal> {
        use PullRequestJob as Job;
        use PullRequestOutcome as Done;
        let wrong =
            || Refusal::WrongOutcome { job: JobKind::PullRequest, outcome: outcome.to_string() };
        let max_rounds = self.rules.delivery.pull_requests.max_rounds;
        let memory = self.task_loop.pull_request.as_mut().ok_or_else(wrong)?;
        let job = memory.job.take().ok_or_else(wrong)?;
        match (*job, outcome) {
            (Job::TriageChecks { checks, .. }, Done::ChecksTriaged { caused, .. }) => {
                // A check that is not named either way is not the change's fault.
                let (caused, excused): (Vec<_>, Vec<_>) =
                    checks.into_iter().partition(|check| caused.contains(check));
                memory.mark_handled(&excused);
                memory.caused.extend(caused);
                Ok(())
            }
            (Job::CollectFeedback { feedback, .. }, Done::FeedbackCollected(note)) => {
                memory.mark_handled(&feedback);
                memory.caused.retain(|it| !feedback.contains(it));
                self.send_back(note)
            }
            (Job::Rebase { .. }, Done::Rebased { head, base, changed }) => {
                memory.same_change = (!changed).then_some(*head);
                self.move_base(*base);
                self.judge_again(*head, Trigger::BaseMoved)
            }
            (Job::Rebase { onto, .. }, Done::RebaseConflicts(note)) => {
                memory.conflict = Some(onto);
                let is_last = memory.rounds >= max_rounds;
                // The worktree is on the new base, with the conflicts.
                self.move_base(onto);
                if is_last {
                    let data = EntryData::Stored(note.clone());
                    self.record_entry(EntryName::SmDeliveryFailed, None, data);
                    return self.ask_about_pull_request(PullRequestProblem::RoundsUsedUp);
                }
                self.send_back(note)
            }
            (Job::Merge { .. }, Done::Merged(commit)) => self.pull_request_merged(*commit, None),
            (Job::Merge { head }, Done::Queued) => {
                memory.queued = Some(head);
                Ok(())
            }
            (Job::Adopt { .. }, Done::Adopted(head)) => {
                memory.set_head(*head);
                memory.same_change = None;
                self.judge_again(*head, Trigger::HeadAdopted)
            }
            (job, Done::Stale) => {
                if !memory.count_stale() {
                    return Ok(());
                }
                if let Job::Merge { head } = job {
                    memory.refused = Some(head);
                }
                self.ask_about_pull_request(PullRequestProblem::Blocked)
            }
            (job, Done::Refused(reason)) => {
                if let Job::Merge { head } = job {
                    memory.refused = Some(head);
                }
                let data = EntryData::Stored(reason.clone());
                self.record_entry(EntryName::SmDeliveryFailed, None, data);
                self.ask_about_pull_request(PullRequestProblem::Blocked)
            }
            _ => Err(wrong()),
        }
    }

    /// Applies a person's answer to a question about the pull request.
    pub(super) fn answer_about_pull_request(&mut self, question: &OpenQuestion, retry: bool) {
        let AlertCause::PullRequest(problem) = question.cause else { return };
        let rules = &self.rules.delivery.pull_requests;
        let Some(memory) = &mut self.task_loop.pull_request else { return };
        match problem {
            // The clock starts again, so to retry is to wait again.
            PullRequestProblem::NoChecks => {
                let facts = memory.facts.as_deref();
                // Only the absence of any CI is a property of the repository.
                if facts.is_some_and(|facts| !missing_checks(facts, rules).is_empty()) {
                    memory.without_required = (!retry).then_some(memory.pushed);
                } else {
                    memory.without_checks = !retry;
                }
            }
            // Commits that came after the question are asked about again.
            PullRequestProblem::HeadMoved => memory.adopt = memory.asked_head.take(),
            PullRequestProblem::RoundsUsedUp if retry => {
                memory.rounds = 0;
                memory.refused = None;
            }
            PullRequestProblem::RoundsUsedUp => {
                let known: &PullRequestState = memory;
                let facts = known.facts.as_ref();
                let ignored = facts.map(|facts| open_feedback(known, facts, rules));
                memory.mark_handled(&ignored.unwrap_or_default());
                if memory.conflict.is_some() {
                    memory.refused = Some(memory.pushed);
                }
            }
            PullRequestProblem::Blocked if retry => (memory.refused, memory.stale) = (None, None),
            PullRequestProblem::Blocked => {
                if memory.facts.as_ref().is_some_and(|facts| facts.incomplete) {
                    memory.refused = Some(memory.pushed);
                }
            }
            PullRequestProblem::Closed => {}
        }
    }

    /// Cancels a task whose pull request was closed, after nobody said why.
    pub(super) fn cancel_closed_pull_request(&mut self) -> Result<(), Refusal> {
        let by = self.task_loop.pull_request.as_ref().and_then(|memory| {
            match memory.facts.as_ref().map(|facts| &facts.status) {
                Some(PullRequestStatus::Closed { by }) => Some(by.clone()),
                _ => None,
            }
        });
        let by = by.unwrap_or_else(|| "somebody".to_owned());
        let reason = format!("pull request closed by {by}, who gave no reason");
        self.transition(Trigger::Cancelled, State::Cancelled, Some(reason.into()), EntryData::None)
    }

    /// Records that a task ends without its pull request. Tamma closes none.
    pub(super) fn record_open_pull_request(&mut self) {
        let open = self.task_loop.pull_request.as_ref().filter(|memory| !memory.is_over());
        let Some((number, stage)) = open.map(|memory| (memory.number, memory.stage)) else {
            return;
        };
        let reason = format!("pull request #{number} stays open; close it in the forge");
        let data = EntryData::PullRequest(stage);
        self.record_entry(EntryName::SmPullRequestUpdated, Some(reason.into()), data);
    }

    /// Returns `true` if the commit is a change that was reviewed before, on another base.
    pub(super) fn is_same_change(&self) -> bool {
        let same = self.task_loop.pull_request.as_ref().and_then(|memory| memory.same_change);
        same.is_some() && same == self.task_loop.commit
    }

    /// Returns `true` if people are asked why the pull request was closed.
    fn asks_why_closed(&self) -> bool {
        let cause = AlertCause::PullRequest(PullRequestProblem::Closed);
        self.task_loop.open_question.as_ref().is_some_and(|question| question.cause == cause)
    }

    /// Returns `true` if newer facts answer the open question about the pull request.
    fn is_question_settled(&self) -> bool {
        let cause = self.task_loop.open_question.as_ref().map(|question| question.cause);
        let (Some(AlertCause::PullRequest(problem)), Some(memory)) =
            (cause, &self.task_loop.pull_request)
        else {
            return false;
        };
        let Some(facts) = &memory.facts else { return false };
        let decision = decide(
            memory,
            facts,
            self.task_loop.delivery_mode(self.rules),
            &self.rules.delivery.pull_requests,
            // The time to wait is over, or nobody would have been asked.
            Timestamp::UNIX_EPOCH,
            self.now,
        );
        match problem {
            // The merge queue returned the change, and no report of the forge changes that.
            PullRequestProblem::RoundsUsedUp if memory.refused == Some(memory.pushed) => false,
            PullRequestProblem::NoChecks
            | PullRequestProblem::HeadMoved
            | PullRequestProblem::RoundsUsedUp => decision != PullRequestDecision::Ask(problem),
            PullRequestProblem::Blocked => memory.is_over(),
            PullRequestProblem::Closed => !matches!(decision, PullRequestDecision::Closed { .. }),
        }
    }

    fn return_to_pull_request(&mut self) -> Result<(), Refusal> {
        // What failed before is no longer the task's concern.
        self.reset_failures();
        self.transition(Trigger::PullRequestChanged, State::AwaitingMerge, None, EntryData::None)
    }

    fn set_stage(&mut self, stage: PullRequestStage) {
        let Some(memory) = &mut self.task_loop.pull_request else { return };
        if memory.stage != stage {
            memory.stage = stage;
            let data = EntryData::PullRequest(stage);
            self.record_entry(EntryName::SmPullRequestUpdated, None, data);
        }
    }

    fn ask_about_pull_request(&mut self, problem: PullRequestProblem) -> Result<(), Refusal> {
        match problem {
            PullRequestProblem::NoChecks => self.set_stage(PullRequestStage::WaitingForChecks),
            PullRequestProblem::HeadMoved => {
                if let Some(memory) = &mut self.task_loop.pull_request {
                    memory.asked_head = memory.facts.as_ref().map(|facts| facts.head);
                }
                self.set_stage(PullRequestStage::HeadMoved);
            }
            PullRequestProblem::RoundsUsedUp => self.set_stage(PullRequestStage::ChangesRequested),
            PullRequestProblem::Blocked => self.set_stage(PullRequestStage::Blocked),
            PullRequestProblem::Closed => {}
        }
        let cause = AlertCause::PullRequest(problem);
        let reason = match problem {
            PullRequestProblem::NoChecks => self.missing_checks_reason(),
            PullRequestProblem::Blocked => self.blocked_reason(),
            PullRequestProblem::HeadMoved
            | PullRequestProblem::RoundsUsedUp
            | PullRequestProblem::Closed => None,
        };
        self.escalate_to_person(Trigger::Alerted, cause, State::AwaitingMerge, reason)
    }

    /// Says that there are more facts than are read, or that many attempts had no result.
    fn blocked_reason(&self) -> EntryReason {
        let memory = self.task_loop.pull_request.as_ref()?;
        if memory.facts.as_ref().is_some_and(|facts| facts.incomplete) {
            let what = "checks, reviews or comments; merge it yourself";
            return Some(format!("more than {MAX_FACTS} {what}").into());
        }
        let count = memory.stale.filter(|count| *count >= MAX_STALE)?;
        Some(format!("{count} attempts had no result, because the forge changed meanwhile").into())
    }

    /// Names the required checks that have not started.
    fn missing_checks_reason(&self) -> EntryReason {
        let facts = self.task_loop.pull_request.as_ref()?.facts.as_ref()?;
        let mut names = missing_checks(facts, &self.rules.delivery.pull_requests);
        names.truncate(MAX_NAMED_CHECKS);
        let reason = format!("required, but not started: {}", names.join(", "));
        (!names.is_empty()).then(|| reason.into())
    }

    fn pull_request_merged(&mut self, commit: CommitId, by: EntryReason) -> Result<(), Refusal> {
        self.task_loop.commit = Some(commit);
        self.transition(Trigger::Merged, State::Learning, by, EntryData::Commit(commit))
    }

    /// Sends feedback back to the agent, as one round.
    fn send_back(&mut self, note: &Reference) -> Result<(), Refusal> {
        if let Some(memory) = &mut self.task_loop.pull_request {
            memory.rounds = memory.rounds.saturating_add(1);
        }
        self.task_loop.note = Some(note.clone());
        let data = EntryData::Stored(note.clone());
        self.transition(Trigger::FeedbackReceived, State::Adjusting, None, data)?;
        let decision = EscalationDecision {
            action: EscalationAction::Iterate(self.task_loop.tier),
            reason: EscalationReason::Feedback,
        };
        self.task_loop.decision = Some(decision);
        self.record_entry(EntryName::SmDecisionMade, None, EntryData::Decision(decision));
        Ok(())
    }

    /// Tests another commit of the pull request.
    fn judge_again(&mut self, commit: CommitId, on: Trigger) -> Result<(), Refusal> {
        self.task_loop.commit = Some(commit);
        self.task_loop.unconfirmed = None;
        self.transition(on, State::Testing, None, EntryData::Commit(commit))
    }

    /// Moves the task to a new base. The plan is the approved one, so its approval stays valid.
    fn move_base(&mut self, base: CommitId) {
        let was_approved = self.task_loop.is_approved();
        if let Some(pin) = &mut self.task_loop.pin {
            pin.base = base;
        }
        if was_approved {
            self.task_loop.approved_scope = self.task_loop.current_scope();
            for approval in &mut self.task_loop.approvals {
                approval.scope.pin.base = base;
            }
        }
    }
}

/// Returns the newest facts of a pull request, with another status.
fn merged_facts(memory: &PullRequestState, status: PullRequestStatus) -> PullRequestFacts {
    PullRequestFacts {
        number: memory.number,
        status,
        draft: false,
        head: memory.pushed,
        base: memory.base,
        mergeability: Mergeability::Clean,
        checks: Vec::new(),
        reviews: Vec::new(),
        threads: Vec::new(),
        queued: false,
        incomplete: false,
    }
}
