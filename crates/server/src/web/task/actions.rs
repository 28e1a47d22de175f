//! Action forms of a task, each with its consequence.

use strum::{Display, IntoEnumIterator as _};
use tamma_core::cause::{AlertCause, PullRequestProblem};
use tamma_core::format::pluralize;
use tamma_core::ids::Name;
use tamma_core::task::Priority;
use tamma_core::task_loop::{Action, AnswerKind, State};
use uuid::Uuid;

use super::TaskData;
use super::change_summary::ChangeSummary;
use crate::app::{preview_action, preview_answer};
use crate::clock;
use crate::web::board::serialized_name;
use crate::web::labels::{short_hash, state_label};
use crate::web::layout::{Link, SelectOption};

/// Form of one action.
pub(in crate::web) struct ActionForm {
    /// Task that the form acts on.
    pub(in crate::web) task: Uuid,
    pub(in crate::web) name: &'static str,
    pub(in crate::web) action: &'static str,
    /// Consequence of the action, in one sentence.
    pub(in crate::web) consequence: String,
    pub(in crate::web) button: String,
    pub(in crate::web) style: ButtonStyle,
    pub(in crate::web) scope: ActionScope,
    /// Sentence about the plan or commit that the decision covers.
    pub(in crate::web) scope_note: Option<String>,
    pub(in crate::web) text: Option<TextField>,
    pub(in crate::web) input: ActionInput,
    /// Link to a page with more detailed input.
    pub(in crate::web) link: Option<Link>,
    /// Change that the form accepts, shown before its button.
    pub(in crate::web) change: Option<ChangeSummary>,
    /// Page to return to; `None` for the task page.
    pub(in crate::web) back: Option<&'static str>,
    /// Set if the form is expanded.
    pub(in crate::web) is_open: bool,
    /// Idempotency key: a repeated submission has no further effect.
    pub(in crate::web) idempotency_key: String,
}

/// CSS class of a button.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
#[strum(serialize_all = "snake_case")]
pub(in crate::web) enum ButtonStyle {
    #[strum(to_string = "")]
    Normal,
    Primary,
    Danger,
}

/// Version that an action applies to; it is refused if a newer one exists.
pub(in crate::web) enum ActionScope {
    /// Whatever the state of the task.
    Task,
    /// Hash of the plan.
    Plan(String),
    /// Hash of the commit.
    Commit(String),
}

/// Text that a person writes for an action.
pub(in crate::web) struct TextField {
    pub(in crate::web) name: &'static str,
    pub(in crate::web) label: &'static str,
    pub(in crate::web) is_required: bool,
}

/// Input of an action besides text.
pub(in crate::web) enum ActionInput {
    Nothing,
    /// Comments on lines of the change.
    LineComments,
    /// Next step after a rejection.
    RejectNext,
    /// Additional runs, dollars and tokens.
    BudgetGrant,
    /// State to return to.
    TargetState(Vec<StateOption>),
    /// Rating from 1 to 5.
    Stars,
    /// Title, priority and labels.
    Details(DetailFields),
}

/// Fields of a task that can be edited.
pub(in crate::web) struct DetailFields {
    /// `None` once there is a plan for the title.
    pub(in crate::web) title: Option<String>,
    pub(in crate::web) priorities: Vec<SelectOption>,
    /// Labels, separated by commas.
    pub(in crate::web) labels: String,
}

pub(in crate::web) struct StateOption {
    pub(in crate::web) value: String,
    pub(in crate::web) text: &'static str,
}

impl ActionForm {
    fn new(
        name: &'static str,
        action: &'static str,
        button: impl Into<String>,
        consequence: impl Into<String>,
    ) -> Self {
        Self {
            task: Uuid::nil(),
            name,
            action,
            consequence: consequence.into(),
            button: button.into(),
            style: ButtonStyle::Normal,
            scope: ActionScope::Task,
            scope_note: None,
            text: None,
            input: ActionInput::Nothing,
            link: None,
            change: None,
            back: None,
            is_open: false,
            idempotency_key: clock::new_id().to_string(),
        }
    }

    fn style(self, style: ButtonStyle) -> Self {
        Self { style, ..self }
    }

    fn scope(self, scope: ActionScope) -> Self {
        Self { scope, ..self }
    }

    fn scope_note(self, note: String) -> Self {
        Self { scope_note: Some(note), ..self }
    }

    fn input(self, input: ActionInput) -> Self {
        Self { input, ..self }
    }

    fn required_text(self, name: &'static str, label: &'static str) -> Self {
        Self { text: Some(TextField { name, label, is_required: true }), ..self }
    }

    fn optional_text(self, name: &'static str, label: &'static str) -> Self {
        Self { text: Some(TextField { name, label, is_required: false }), ..self }
    }

    fn required_reason(self) -> Self {
        self.required_text("reason", "Reason")
    }

    fn optional_reason(self) -> Self {
        self.optional_text("reason", "Reason")
    }
}

/// Builds the forms that answer the open question. The first one is expanded.
pub(super) fn answer_forms(
    data: &TaskData,
    answers: &[AnswerKind],
    person: Option<&Name>,
) -> Vec<ActionForm> {
    let mut forms: Vec<_> =
        answers.iter().map(|answer| answer_form(data, *answer, person)).collect();
    set_task(&mut forms, data);
    if let Some(first) = forms.first_mut() {
        first.is_open = true;
        if first.style == ButtonStyle::Normal {
            first.style = ButtonStyle::Primary;
        }
    }
    forms
}

/// Returns the consequence of an answer, as the state machine computes it.
fn consequence_of(data: &TaskData, answer: AnswerKind, person: Option<&Name>) -> String {
    let (task_loop, rules) = (&data.task_loop, &data.rules);
    person
        .map(|person| preview_answer(task_loop, rules, person, answer, clock::now()))
        .filter(|_| data.detail.read_error.is_none())
        .unwrap_or_default()
}

/// Returns the consequence of an action that needs no question, as the state machine computes it.
fn consequence_of_action(data: &TaskData, action: Action, person: Option<&Name>) -> String {
    let (task_loop, rules) = (&data.task_loop, &data.rules);
    person
        .map(|person| preview_action(task_loop, rules, person, action, clock::now()))
        .filter(|_| data.detail.read_error.is_none())
        .unwrap_or_default()
}

fn set_task(forms: &mut [ActionForm], data: &TaskData) {
    for form in forms {
        form.task = data.detail.card.id;
    }
}

fn answer_form(data: &TaskData, answer: AnswerKind, person: Option<&Name>) -> ActionForm {
    let plan = data.detail.plan.as_ref();
    let hash = plan.map(|plan| plan.hash.clone()).unwrap_or_default();
    let version = plan.map_or(0, |plan| plan.version);
    let commit = data.detail.commit.clone().unwrap_or_default();
    let (short_plan, short_commit) = (short_hash(&hash), short_hash(&commit));
    let about_plan = format!("Covers plan {version} ({short_plan}) only.");
    let consequence = consequence_of(data, answer, person);
    if let Some(AlertCause::PullRequest(problem)) =
        data.detail.question.as_ref().map(|question| question.cause)
        && let Some((name, action, button)) = pull_request_button(problem, answer)
    {
        let form = ActionForm::new(name, action, button, consequence);
        return match answer {
            AnswerKind::Skip => form.style(ButtonStyle::Danger).required_reason(),
            _ => form,
        };
    }
    match answer {
        AnswerKind::Approve => {
            let button = format!("Approve plan {version}");
            ActionForm::new("Approve", "approve", button, consequence)
                .scope(ActionScope::Plan(hash))
                .scope_note(format!(
                    "Covers plan {version} ({short_plan}) with its base commit and rules. If any \
                     of them changes, approval is needed again."
                ))
                .optional_reason()
        }
        AnswerKind::Reject => {
            ActionForm::new("Reject", "reject", format!("Reject plan {version}"), consequence)
                .style(ButtonStyle::Danger)
                .scope(ActionScope::Plan(hash))
                .required_reason()
                .input(ActionInput::RejectNext)
        }
        AnswerKind::RevisePlan => {
            let link =
                Link::new(format!("/tasks/{}/plan/edit", data.detail.card.id), "Edit the plan");
            let form = ActionForm::new("Revise plan", "ask_changes", "Revise plan", consequence)
                .scope(ActionScope::Plan(hash))
                .scope_note(about_plan)
                .required_text("changes", "What should change?");
            ActionForm { link: Some(link), ..form }
        }
        AnswerKind::Override => {
            ActionForm::new("Override", "override", "Override prohibition", consequence)
                .style(ButtonStyle::Danger)
                .scope(ActionScope::Plan(hash))
                .scope_note(about_plan)
                .required_reason()
        }
        AnswerKind::Accept => {
            let form = ActionForm::new("Accept", "accept", "Accept change", consequence)
                .scope(ActionScope::Commit(commit))
                .scope_note(format!(
                    "Covers commit {short_commit} only. A new commit needs a new review."
                ))
                .optional_reason();
            ActionForm { change: data.change.clone(), ..form }
        }
        AnswerKind::RequestChanges => {
            ActionForm::new("Request changes", "rework", "Request changes", consequence)
                .scope(ActionScope::Commit(commit))
                .optional_text("comments", "What should change?")
                .input(ActionInput::LineComments)
        }
        AnswerKind::Reply => ActionForm::new("Reply", "reply", "Send reply", consequence)
            .required_text("text", "Your reply"),
        AnswerKind::Continue => ActionForm::new("Continue", "continue", "Continue", consequence)
            .input(ActionInput::BudgetGrant),
        AnswerKind::Retry => {
            let form = ActionForm::new("Retry", "retry", "Retry", consequence);
            match data.detail.question.as_ref().map(|question| question.cause) {
                Some(AlertCause::Blocked(_) | AlertCause::Rejected) => form,
                _ => form.input(ActionInput::BudgetGrant),
            }
        }
        AnswerKind::ChangeTask => change_task_form(consequence),
        AnswerKind::RollBack => {
            let form = ActionForm::new("Roll back", "roll_back", "Roll back", consequence)
                .required_reason();
            form.input(ActionInput::TargetState(rollback_states(data)))
        }
        AnswerKind::Skip => ActionForm::new("Skip", "skip", "Skip step", consequence)
            .style(ButtonStyle::Danger)
            .required_reason(),
        AnswerKind::Convene => convene_form(consequence),
        AnswerKind::Cancel => cancel_form(consequence),
        AnswerKind::Abandon => ActionForm::new("Abandon", "abandon", "Abandon task", consequence)
            .style(ButtonStyle::Danger)
            .required_reason(),
    }
}

/// Returns name, action and button of an answer that means something else for a pull request, and
/// needs no more budget.
fn pull_request_button(
    problem: PullRequestProblem,
    answer: AnswerKind,
) -> Option<(&'static str, &'static str, &'static str)> {
    use PullRequestProblem as P;
    Some(match (problem, answer) {
        (P::NoChecks, AnswerKind::Continue) => ("Continue", "continue", "Continue without CI"),
        (P::HeadMoved, AnswerKind::Continue) => ("Continue", "continue", "Take over commits"),
        (P::RoundsUsedUp, AnswerKind::Continue) => ("Continue", "continue", "Ignore this feedback"),
        (P::Blocked, AnswerKind::Continue) => {
            ("Continue", "continue", "Leave the merge to a person")
        }
        (P::NoChecks | P::RoundsUsedUp | P::Blocked, AnswerKind::Retry) => {
            ("Retry", "retry", "Retry")
        }
        (_, AnswerKind::Skip) => ("Skip", "skip", "Stop following it"),
        _ => return None,
    })
}

/// Returns the states that a task can be rolled back to: those before the one it came from.
fn rollback_states(data: &TaskData) -> Vec<StateOption> {
    let position = |state: State| State::MAIN_PATH.iter().position(|it| *it == state);
    let from = data.task_loop.open_question.as_ref().map(|question| question.from_state);
    let from = from.and_then(position);
    [State::Planning, State::Validated]
        .into_iter()
        .filter(|state| from.is_none_or(|from| position(*state).is_some_and(|at| at < from)))
        .map(|state| StateOption { value: serialized_name(&state), text: state_label(state) })
        .collect()
}

fn change_task_form(consequence: String) -> ActionForm {
    ActionForm::new("Change task", "modify", "Save and replan", consequence)
        .required_text("note", "New request")
}

fn convene_form(consequence: String) -> ActionForm {
    ActionForm::new("Convene council", "convene", "Convene council", consequence)
        .required_text("question", "What should the council find out?")
}

fn edit_form(data: &TaskData) -> ActionForm {
    let card = &data.detail.card;
    let chosen = card.priority.to_string();
    let option = |it: Priority| SelectOption::new(it.to_string(), it.to_string(), &chosen);
    let fields = DetailFields {
        title: data.task_loop.plan.is_none().then(|| card.title.clone()),
        priorities: Priority::iter().map(option).collect(),
        labels: card.labels.join(", "),
    };
    let what =
        if fields.title.is_some() { "Title, priority and labels" } else { "Priority and labels" };
    ActionForm::new("Edit", "edit", "Save", format!("{what}. Nothing is replanned."))
        .input(ActionInput::Details(fields))
}

fn cancel_form(consequence: String) -> ActionForm {
    ActionForm::new("Cancel task", "cancel", "Cancel task", consequence)
        .style(ButtonStyle::Danger)
        .required_reason()
}

/// Builds the forms that are always available.
pub(super) fn control_forms(data: &TaskData, person: Option<&Name>) -> Vec<ActionForm> {
    let card = &data.detail.card;
    if card.state.is_terminal() {
        let rating = Action::Rate { stars: 5, reason: None };
        let consequence = consequence_of_action(data, rating, person);
        let form = ActionForm::new("Rate", "rate", "Rate task", consequence);
        let form = form.optional_reason().input(ActionInput::Stars);
        return vec![ActionForm { task: card.id, ..form }];
    }
    let first = if card.paused {
        let consequence = consequence_of_action(data, Action::Resume, person);
        ActionForm::new("Resume", "resume", "Resume", consequence).style(ButtonStyle::Primary)
    } else {
        let consequence = consequence_of_action(data, Action::Pause, person);
        ActionForm::new("Pause", "pause", "Pause", consequence)
    };
    let change_task = consequence_of(data, AnswerKind::ChangeTask, person);
    let mut forms = vec![first, edit_form(data), change_task_form(change_task)];
    // An open question offers it among its answers.
    let can_convene = data.detail.question.is_none()
        && data.task_loop.can_convene(&data.rules)
        && matches!(
            card.state,
            State::Planning
                | State::Validated
                | State::InProgress
                | State::Testing
                | State::QualityReview
                | State::Adjusting
        );
    if can_convene {
        forms.push(convene_form(consequence_of(data, AnswerKind::Convene, person)));
    }
    forms.push(cancel_form(consequence_of(data, AnswerKind::Cancel, person)));
    set_task(&mut forms, data);
    forms
}

/// Returns the facts that a person needs to answer the question.
pub(super) fn decision_context(data: &TaskData) -> Vec<String> {
    let Some(question) = &data.detail.question else { return Vec::new() };
    let mut lines = Vec::new();
    if let (AlertCause::ApprovalNeeded { .. }, Some(plan)) = (question.cause, &data.detail.plan) {
        let warnings = data.detail.risk_report.as_ref().map_or(0, |report| report.warnings);
        lines.push(format!(
            "Plan {} changes {}. The knowledge check raised {}.",
            plan.version,
            pluralize(plan.files, "file"),
            match warnings {
                0 => "no warnings".to_owned(),
                count => pluralize(count, "warning"),
            }
        ));
    }
    let no_checks = AlertCause::PullRequest(PullRequestProblem::NoChecks);
    if let Some(it) = data.detail.pull_request.as_ref().filter(|_| question.cause == no_checks) {
        // Checks that run would have kept the question from being asked.
        let waiting = it.checks.iter().filter(|check| check.required && check.result == "pending");
        let names: Vec<_> = waiting.map(|check| check.name.as_str()).take(5).collect();
        if !names.is_empty() {
            lines.push(format!("Required, but not started: {}", names.join(", ")));
        }
    }
    if let Some(commit) = &data.detail.commit {
        lines.push(format!("Latest commit: {}", short_hash(commit)));
    }
    lines
}
