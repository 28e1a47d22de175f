//! Open question of a task.

use tamma_core::access::Permission;
use tamma_core::format::capitalize;
use tamma_core::ids::Name;
use tamma_core::requested_permissions::requested_permissions;
use tamma_core::task_loop::{AnswerKind, NextStep};

use super::TaskData;
use super::actions::{self, ActionForm};
use crate::web::html::SafeHtml;
use crate::web::layout::{DisplayTime, Link};
use crate::web::markdown;
use crate::web::permissions::PagePermissions;

/// Open question on a task page.
pub(in crate::web) enum QuestionView {
    /// No question is open, or the task is paused.
    None,
    /// Title only, on tabs that are not about the decision.
    Brief(BriefQuestion),
    /// Question with its answers, on the overview.
    Full(Box<FullQuestion>),
    /// Question in one line, with its answers in panels, above the change.
    Bar(Box<FullQuestion>),
}

/// Title of a question, with a link to the page that shows it in full.
pub(in crate::web) struct BriefQuestion {
    pub(in crate::web) title: String,
    pub(in crate::web) href: String,
}

pub(in crate::web) struct FullQuestion {
    pub(in crate::web) title: String,
    /// Link at the top of the overview: a change is decided where it is shown.
    pub(in crate::web) decision: Link,
    pub(in crate::web) asked_at: DisplayTime,
    /// Person who marked it as seen.
    pub(in crate::web) seen_by: Option<String>,
    /// Time of the next reminder.
    pub(in crate::web) reminder_at: Option<DisplayTime>,
    pub(in crate::web) agent_question: Option<AgentQuestion>,
    /// Facts for the decision.
    pub(in crate::web) context: Vec<String>,
    pub(in crate::web) answers: AnswerSection,
    /// Set if the viewer can mark it as seen.
    pub(in crate::web) can_acknowledge: bool,
}

/// Question in the words of an agent.
pub(in crate::web) struct AgentQuestion {
    pub(in crate::web) html: SafeHtml,
    pub(in crate::web) default_answer: Option<String>,
}

/// Answers that a page offers.
pub(in crate::web) enum AnswerSection {
    Forms(Vec<ActionForm>),
    /// The viewer cannot answer; the text names who can.
    ReadOnly(String),
}

impl QuestionView {
    /// Builds the question for a tab. The overview and the change show it in full.
    pub(in crate::web) async fn load(
        data: &TaskData,
        tab: &str,
        permissions: &mut PagePermissions,
        person: Option<&Name>,
    ) -> Self {
        let detail = &data.detail;
        let Some(question) = detail.question.as_ref().filter(|_| !detail.card.paused) else {
            return Self::None;
        };
        let title = capitalize(&question.cause_text);
        if !["", "change"].contains(&tab) {
            let href = match &data.change {
                Some(change) => change.href.clone(),
                None => format!("/tasks/{}#question", detail.card.id),
            };
            return Self::Brief(BriefQuestion { title, href });
        }
        let agent_question = question.agent_question.as_deref().unwrap_or_default();
        let asks_for_permissions = !requested_permissions(agent_question).is_empty();
        let mut answers = Vec::new();
        for answer in &question.answers {
            let needed = match answer {
                // A yes grants them, so it is a decision.
                AnswerKind::Reply if asks_for_permissions => Permission::Decide,
                answer => Permission::from(*answer),
            };
            if permissions.allows(detail.card.project, needed) {
                answers.push(*answer);
            }
        }
        let answers = if answers.is_empty() {
            let waiting_on = permissions.waiting_on(&detail.card).await;
            AnswerSection::ReadOnly(waiting_on.map(|it| it.to_string()).unwrap_or_default())
        } else {
            let mut forms = actions::answer_forms(data, &answers, person);
            if tab == "change" {
                for form in &mut forms {
                    // The page shows the change itself.
                    form.change = None;
                }
            }
            AnswerSection::Forms(forms)
        };
        let is_seen = question.seen_by.is_some();
        let full = Box::new(FullQuestion {
            title,
            decision: match &data.change {
                Some(change) => Link::new(&change.href, "Read the change and decide"),
                None => Link::new("#question", "Go to the decision"),
            },
            asked_at: DisplayTime::ago(question.asked_at),
            seen_by: question.seen_by.clone(),
            reminder_at: match &detail.card.next {
                Some(NextStep::Answer { reminder_at, .. }) => {
                    reminder_at.map(DisplayTime::absolute)
                }
                _ => None,
            },
            agent_question: question.agent_question.clone().map(|text| AgentQuestion {
                html: markdown::to_html(&text),
                default_answer: question.default.clone(),
            }),
            context: actions::decision_context(data),
            answers,
            can_acknowledge: !is_seen && permissions.allows(detail.card.project, Permission::Work),
        });
        if tab == "change" { Self::Bar(full) } else { Self::Full(full) }
    }
}
