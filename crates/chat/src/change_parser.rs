//! Conversion of commands into a change or a clarifying question.

use std::ops::Range;

use tamma_core::budget::Grant;
use tamma_core::ids::TaskId;
use tamma_core::knowledge::EntryStatus;
use tamma_core::task::{Priority, TaskType};
use tamma_core::task_loop::{AnswerKind, State};

use crate::change::{ChatAction, LessonDecision, RequestedChange, TaskDraft};
use crate::command_parser::{COMMAND_WORDS, ChatCommand, Verb, parse_command, parse_commands};
use crate::interpretation::interpretation;
use crate::message_text::{MessageText, form};
use crate::task_reference::{self, TaskReference};
use crate::{ChatContext, ChatTask, Clarification, Intent, Interpretation};

/// Interprets the commands of a message, if it has any.
pub(crate) fn parse_change(own: &MessageText<'_>, context: &ChatContext) -> Option<Interpretation> {
    let mut orders = parse_commands(own, context);
    let about = |order: &ChatCommand| own.masked.get(order.target.clone()).unwrap_or_default();
    orders.retain(|order| order.verb != Verb::Add || parse_new_task(own, order, context).is_some());
    orders.retain(|order| {
        !order.is_statement || task_reference::is_task_name(about(order), context, order.verb)
    });
    let first = orders.first()?;
    let taken_back = form!(
        r"\b(?:just kidding|kidding|jk|no way|never ?mind|scratch that|(?:wait|actually),? (?:no|don['’]?t|do not)|or not)\b"
    );
    if first.payload.is_none()
        && own.masked.get(first.start..).is_some_and(|it| taken_back.is_match(it))
    {
        return Some(interpretation(Intent::Talk, 70, "retracted command"));
    }
    if orders.iter().all(|order| form!(r"^\s*(?:nothing|none|no ?one)\b").is_match(about(order))) {
        return Some(interpretation(Intent::Talk, 80, "command without a target"));
    }
    let unclear = |unclear, why: &str| Some(interpretation(Intent::Unclear(unclear), 70, why));
    if is_conditional(own, first) {
        return unclear(Clarification::Condition, "conditional or scheduled command");
    }
    let lesson =
        form!(r"\b(?:lessons?|learnings?|knowledge|rules?|conventions?)\b").is_match(&own.masked);
    let Some(order) = single_command(own, &orders, context) else {
        return unclear(Clarification::OneAtATime, "several commands, or one for several tasks");
    };
    let made = match order.verb {
        Verb::Add => parse_new_task(own, order, context)?,
        Verb::Retire => lesson_change(own, order, LessonDecision::Retire, context),
        Verb::Approve if lesson => lesson_change(own, order, LessonDecision::Approve, context),
        Verb::Reject if lesson => lesson_change(own, order, LessonDecision::Reject, context),
        // Removing a lesson means rejecting a proposed one, or retiring an approved one.
        Verb::Cancel if lesson => lesson_change(own, order, LessonDecision::Reject, context)
            .or_else(|_| lesson_change(own, order, LessonDecision::Retire, context)),
        Verb::LooksGood => match target_task(own, order, context) {
            Ok(task) => Ok(RequestedChange::Task {
                task,
                action: task_action(own, order, task, context).ok()?,
            }),
            Err(_) => return None,
        },
        _ => target_task(own, order, context).and_then(|task| {
            Ok(RequestedChange::Task { task, action: task_action(own, order, task, context)? })
        }),
    };
    Some(match made {
        Ok(change) => {
            let sure = if order.clause_index == 0 { 90 } else { 80 };
            interpretation(Intent::Change(change), sure, format!("command: {}", order.verb))
        }
        Err(back) => {
            let why = format!("incomplete command: {}", order.verb);
            interpretation(Intent::Unclear(back), 70, why)
        }
    })
}

/// Returns the only command of a message, if it has exactly one for one task.
fn single_command<'a>(
    own: &MessageText<'_>,
    orders: &'a [ChatCommand],
    context: &ChatContext,
) -> Option<&'a ChatCommand> {
    // "Looks good" and "give it 5 dollars" can accompany another command.
    let weak = |order: &&ChatCommand| matches!(order.verb, Verb::LooksGood | Verb::Grant);
    let strong: Vec<_> = orders.iter().filter(|order| !weak(order)).collect();
    let (order, more) = match &*strong {
        [] => (orders.first()?, false),
        [order] => (*order, false),
        [order, others @ ..] => {
            let points = |other: &ChatCommand| {
                let about = own.masked.get(other.target.clone()).unwrap_or_default();
                !matches!(
                    task_reference::find_task(about, context, |_| true),
                    TaskReference::Pronoun | TaskReference::Nothing
                )
            };
            (*order, others.iter().any(|other| other.verb != order.verb || points(other)))
        }
    };
    let about = own.masked.get(order.target.clone()).unwrap_or_default();
    let several = order.verb != Verb::Add
        && form!(r"\b(?:all|everything|every|each|both|any|anything)\b").is_match(about);
    let named = task_reference::named_tasks(&own.masked, context).into_iter().flatten().count() > 1
        && order.payload.is_none();
    let or = form!(r"\bor (?P<next>[a-z-]+)");
    let either = or
        .group(about, "next")
        .and_then(|at| about.get(at))
        .is_some_and(|next| COMMAND_WORDS.contains(&next));
    (!(more || several || named || either)).then_some(order)
}

/// Returns true if a command is conditional or for later. Text that is passed on is not considered.
fn is_conditional(own: &MessageText<'_>, order: &ChatCommand) -> bool {
    let end = if order.payload.is_some() { order.start } else { own.masked.len() };
    let text = own.masked.get(..end).unwrap_or_default();
    let text = text.replace("once more", "").replace("once again", "").replace("at once", "");
    let case = form!(
        r"\b(?:if|unless|once|whenever|when|provided|assuming|in case|as soon as|as long as)\b"
    );
    let time = form!(
        r"\b(?:tomorrow|tonight|later|next week|after|(?:on|before|after|by) (?:mon|tues|wednes|thurs|fri|satur|sun)day|at \d)\b"
    );
    case.is_match(&text) || (order.verb != Verb::Pause && time.is_match(&text))
}

/// Returns the task that a command targets.
fn target_task(
    own: &MessageText<'_>,
    order: &ChatCommand,
    context: &ChatContext,
) -> Result<TaskId, Clarification> {
    let fits = |task: &ChatTask| order.verb.applies_to(task);
    let checked = |task: TaskId| match context.task(task) {
        Some(subject) if fits(subject) => Ok(task),
        Some(_) => Err(Clarification::NotApplicable { task, verb: order.verb }),
        None => Err(Clarification::UnknownTask { description: String::new() }),
    };
    let which = |tasks| Err(Clarification::WhichTask { tasks, lessons: Vec::new() });
    let about = own.masked.get(target_range(own, order)).unwrap_or_default();
    match task_reference::find_task(about, context, fits) {
        TaskReference::One(task) => return checked(task),
        TaskReference::Many(tasks) => return which(tasks),
        TaskReference::Unknown(said) => {
            return Err(Clarification::UnknownTask { description: said });
        }
        TaskReference::Pronoun | TaskReference::Nothing => {}
    }
    // "The refund plan is fine, approve it": the task in the previous clause.
    let before = own.clauses.get(order.clause_index).map(|clause| clause.range.start..order.start);
    let clauses =
        own.clauses.iter().take(order.clause_index).rev().map(|clause| clause.range.clone());
    for place in before.into_iter().chain(clauses) {
        match task_reference::find_task(own.masked.get(place).unwrap_or_default(), context, fits) {
            TaskReference::One(task) => return checked(task),
            TaskReference::Many(tasks) => return which(tasks),
            _ => {}
        }
    }
    if let Some(last) = context.last {
        return checked(last);
    }
    let open: Vec<_> = context.tasks.iter().filter(|task| fits(task)).map(|task| task.id).collect();
    match &*open {
        [task] => Ok(*task),
        [] => Err(Clarification::UnknownTask { description: String::new() }),
        _ => which(open),
    }
}

/// Returns the range that names the target, without the reason.
fn target_range(own: &MessageText<'_>, order: &ChatCommand) -> Range<usize> {
    let about = own.masked.get(order.target.clone()).unwrap_or_default();
    let end = form!(r"\b(?:because|since|cause|due to)\b").find(about);
    order.target.start..end.map_or(order.target.end, |end| order.target.start + end.start)
}

/// Returns the reason in the person's words: after "because", or the text that follows the command.
fn stated_reason(own: &MessageText<'_>, order: &ChatCommand) -> Option<String> {
    let clause = own.clauses.get(order.clause_index)?;
    let said = own.masked.get(order.start..clause.range.end)?;
    let start = if let Some(found) = form!(r"\b(?:because|since|cause|due to)\s").find(said) {
        order.start + found.end
    } else {
        let next = own.clauses.get(order.clause_index + 1)?;
        let text = own.clause_text(next);
        let other = form!(
            r"^\s*(?:don['’]?t|do not|never|please|pls|thanks|thank you|thx|ok|how|what|when|why|who|where|tamma|then|move on|go on|carry on)\b|--|^\s*rm\b|^\s*(?:it |that )?(?:looks|sounds) (?:good|fine|great|ok)|\$\d|\d+ (?:more )?(?:dollars|usd|runs)"
        );
        let ordered =
            parse_command(own, order.clause_index + 1, next).is_some_and(|it| it.verb != Verb::Add);
        if next.is_question || other.is_match(text) || ordered {
            return None;
        }
        next.range.start
    };
    let said = own.original_text(start..own.original.len());
    let said = said.trim_end_matches(['.', '!', ' ']);
    (!said.is_empty()).then(|| said.to_owned())
}

/// Returns the action of a command on a task.
fn task_action(
    own: &MessageText<'_>,
    order: &ChatCommand,
    task: TaskId,
    context: &ChatContext,
) -> Result<ChatAction, Clarification> {
    let Some(subject) = context.task(task) else {
        return Err(Clarification::UnknownTask { description: String::new() });
    };
    let words = match order.verb {
        Verb::Modify | Verb::Reply => payload_text(own, order),
        _ => stated_reason(own, order),
    };
    let said = if order.verb == Verb::RollBack { order.start } else { 0 };
    action_for(order.verb, subject, words, own.masked.get(said..).unwrap_or_default())
}

/// Returns the action of a verb on a task. `words` is the reason or the text to pass on; grants and
/// the target of a rollback come from the text.
pub(crate) fn action_for(
    verb: Verb,
    task: &ChatTask,
    words: Option<String>,
    text: &str,
) -> Result<ChatAction, Clarification> {
    let may = |answer| task.answers.contains(&answer);
    let reason = words;
    Ok(match verb {
        Verb::Approve | Verb::LooksGood if may(AnswerKind::Approve) => {
            ChatAction::Approve { reason }
        }
        Verb::Approve | Verb::LooksGood => ChatAction::Accept { reason },
        Verb::Reject if may(AnswerKind::Reject) => ChatAction::Reject { reason },
        Verb::Reject => ChatAction::Rework { reason },
        Verb::Pause => ChatAction::Pause,
        Verb::Resume => ChatAction::Resume,
        Verb::Continue if task.paused => ChatAction::Resume,
        Verb::Continue => ChatAction::Continue { grant: parse_grant(text) },
        Verb::Retry => ChatAction::Retry { grant: parse_grant(text) },
        Verb::Cancel => ChatAction::Cancel { reason },
        Verb::Skip => ChatAction::Skip { reason },
        Verb::Abandon => ChatAction::Abandon { reason },
        Verb::Acknowledge => ChatAction::Acknowledge,
        Verb::Override => ChatAction::Override {
            reason: reason.ok_or(Clarification::MissingReason { task: task.id })?,
        },
        Verb::RollBack => ChatAction::RollBack {
            to: parse_state(text).ok_or(Clarification::RollBackTarget { task: task.id })?,
            reason,
        },
        Verb::Modify => ChatAction::Modify { words: reason.ok_or(Clarification::NotUnderstood)? },
        Verb::Reply => ChatAction::Reply { words: reason.ok_or(Clarification::NotUnderstood)? },
        Verb::Stop => {
            return Err(Clarification::WhichCommand { verbs: vec![Verb::Pause, Verb::Cancel] });
        }
        Verb::Grant => {
            return Err(Clarification::WhichCommand { verbs: vec![Verb::Retry, Verb::Continue] });
        }
        Verb::Retire | Verb::Add => return Err(Clarification::NotUnderstood),
    })
}

/// Returns the text that a command passes on; only the quote, if it passes on a quote.
fn payload_text(own: &MessageText<'_>, order: &ChatCommand) -> Option<String> {
    let said = own.original_text(order.payload.clone()?);
    let said = said.trim_end_matches(['.', '!', '?', ' ']);
    let quoted = || own.quoted.map(crate::message_text::sanitize_line);
    let said = Some(said.to_owned()).filter(|said| !said.is_empty()).or_else(quoted);
    said.filter(|said| !said.is_empty())
}

/// Parses extra runs, dollars and tokens.
fn parse_grant(text: &str) -> Grant {
    let number = |at: Option<Range<usize>>| at.and_then(|at| text.get(at));
    let usd = form!(r"\$ ?(?P<n>\d+(?:\.\d+)?)").group(text, "n");
    let usd = usd.or_else(|| {
        let named =
            form!(r"\b(?P<n>\d+(?:\.\d+)?) (?:more |extra |additional )?(?:dollars?|usd|bucks)\b");
        named.group(text, "n")
    });
    let runs =
        form!(r"\b(?P<n>\d+) (?:more |extra |additional )?(?:runs?|iterations?|attempts?)\b");
    let tokens = form!(r"\b(?P<n>\d+) (?:more |extra |additional )?tokens?\b");
    Grant {
        usd: number(usd).and_then(|n| n.parse().ok()).unwrap_or_default(),
        iterations: number(runs.group(text, "n")).and_then(|n| n.parse().ok()).unwrap_or_default(),
        tokens: number(tokens.group(text, "n")).and_then(|n| n.parse().ok()).unwrap_or_default(),
    }
}

/// Parses a state from common words for it.
fn parse_state(text: &str) -> Option<State> {
    let to = form!(
        r"\bto (?:the |an? )?(?P<to>plan|approv|implement|cod|in[_ ]progress|test|quality|review|validated|pending)"
    );
    Some(match text.get(to.group(text, "to")?)? {
        "plan" => State::Planning,
        "approv" => State::AwaitingApproval,
        "test" => State::Testing,
        "quality" | "review" => State::QualityReview,
        "validated" => State::Validated,
        "pending" => State::Pending,
        _ => State::InProgress,
    })
}

/// Returns a decision on a lesson.
fn lesson_change(
    own: &MessageText<'_>,
    order: &ChatCommand,
    decision: LessonDecision,
    context: &ChatContext,
) -> Result<RequestedChange, Clarification> {
    let wanted = if decision == LessonDecision::Retire {
        EntryStatus::Approved
    } else {
        EntryStatus::Pending
    };
    let about = own.masked.get(target_range(own, order)).unwrap_or_default();
    let text = if task_reference::content_words(about).is_empty() { &*own.masked } else { about };
    let lesson = task_reference::find_lesson(text, context, |lesson| lesson.status == wanted)?;
    Ok(RequestedChange::Lesson { lesson: lesson.id, decision, reason: stated_reason(own, order) })
}

/// Returns a new task, or an addition to an existing one. `None` if the text only resembles a
/// command.
fn parse_new_task(
    own: &MessageText<'_>,
    order: &ChatCommand,
    context: &ChatContext,
) -> Option<Result<RequestedChange, Clarification>> {
    let from = order.payload.clone()?.start;
    let end = own.sentence_end(from);
    let text = own.masked.get(from..end)?;
    if form!(r"^(?:update (?:on|me|us|about)\b|(?:need|want) (?:the|to|your|my|more|help|you|it|that|this)\b|move on\b|make (?:sure|sense))").is_match(text) {
        return None;
    }
    // "Fix it" is not enough for a task.
    if form!(r"^[a-z]+ (?:it|that|this|them|me|something)\b").is_match(text) {
        return Some(Err(Clarification::NotUnderstood));
    }
    let to =
        form!(r"\bto (?P<to>(?:the )?[a-z0-9 -]+ (?:one|task|plan)|it|that one|this one|#\d+)$");
    if let Some(to) = to.group(text, "to").and_then(|at| text.get(at)) {
        let found =
            match task_reference::find_task(to, context, |task| Verb::Modify.applies_to(task)) {
                TaskReference::Pronoun => context.last,
                TaskReference::One(task) => Some(task),
                _ => None,
            };
        if let Some(task) =
            found.filter(|task| context.task(*task).is_some_and(|it| Verb::Modify.applies_to(it)))
        {
            let act = ChatAction::Modify { words: own.original_text(from..end) };
            return Some(Ok(RequestedChange::Task { task, action: act }));
        }
    }
    let wished = form!(r"^(?:need|want|['’]d like|would like) ").find(text).map_or(0, |it| it.end);
    // "I need a summary, what was completed?" is a question.
    let asks =
        form!(r"^an? (?:summary|overview|report|list|update|answer|figure|number|hint|reminder)\b");
    let rest = text.get(wished..).unwrap_or_default();
    if wished > 0 && (asks.is_match(rest) || own.clauses.iter().any(|clause| clause.is_question)) {
        return None;
    }
    let start = from + wished;
    let text = text.get(wished..)?;
    let kind = form!(
        r"^(?P<make>(?:new|add|create|file|open|make|log|raise|submit|register) )?(?:an? )?(?:new )?(?:(?P<how>urgent|critical|high|medium|low)(?:[- ]prio(?:rity)?)? )?(?P<noun>task|ticket|bugfix|bug|issue|chore|feature|docs|refactor|test|story)\b(?P<mark>\s*:\s*| (?:to|for|that|about) |\s*$| )"
    );
    let part = |name: &str| kind.group(text, name).and_then(|at| text.get(at));
    let noun = part("noun").unwrap_or_default();
    let mark = part("mark").unwrap_or_default();
    let made = part("make").is_some() || wished > 0;
    let work = matches!(noun, "task" | "ticket");
    let named = !noun.is_empty()
        && (mark.contains(':')
            || (made
                && (work
                    || (matches!(noun, "bug" | "issue" | "chore" | "story") && mark.len() > 1))));
    if !named
        && form!(r"^(?:new|file|open|task|bug|docs|chore|feature|test|raise|log|submit|register)\b")
            .is_match(text)
    {
        return None;
    }
    let skip = if named { kind.group(text, "mark").map_or(0, |mark| mark.end) } else { 0 };
    let end = start + form!(r"(?:,? (?:please|pls|thanks|thank you|with|(?:low|medium|high|critical|urgent|top) prio(?:rity)?))*\s*$").find(text).map_or(text.len(), |tail| tail.start);
    let title = own.original_text(start + skip..end.max(start + skip));
    if title.is_empty() {
        return Some(Err(Clarification::NotUnderstood));
    }
    let rest = own.original_text(own.sentence_end(from)..own.original.len());
    let rest = rest.trim_start_matches(['.', '!', '?', ' ']);
    let description = (!rest.is_empty()
        && !form!(r"(?i)^(?:thanks|thank you|thx|please)\b").is_match(rest))
    .then(|| rest.to_owned());
    Some(Ok(RequestedChange::Add(TaskDraft {
        r#type: task_type(noun, &title.to_ascii_lowercase()),
        priority: parse_priority(&own.masked, part("how")),
        title,
        description,
    })))
}

fn task_type(noun: &str, title: &str) -> TaskType {
    match noun {
        "bug" | "bugfix" => return TaskType::Bugfix,
        "feature" => return TaskType::Feature,
        "chore" => return TaskType::Chore,
        "docs" => return TaskType::Docs,
        "refactor" => return TaskType::Refactor,
        _ => {}
    }
    if noun == "test"
        || form!(r"^(?:add|write|create)\b[^,]*\btests?\b|^(?:test|cover) ").is_match(title)
    {
        TaskType::Test
    } else if form!(r"^(?:document|describe)\b|\b(?:readme|docs|documentation|changelog)\b")
        .is_match(title)
    {
        TaskType::Docs
    } else if form!(r"^fix\b|\b(?:bug|crash|crashes|broken|fails?|error|wrong|regression)\b")
        .is_match(title)
    {
        TaskType::Bugfix
    } else if form!(r"^(?:refactor|rename|extract|simplify|restructure|split|move)\b")
        .is_match(title)
    {
        TaskType::Refactor
    } else if form!(
        r"^(?:bump|upgrade|clean ?up|remove|delete|get rid of)\b|\b(?:dependenc(?:y|ies)|lint)\b"
    )
    .is_match(title)
    {
        TaskType::Chore
    } else {
        TaskType::Feature
    }
}

fn parse_priority(text: &str, said: Option<&str>) -> Option<Priority> {
    let before = form!(r"^\s*(?P<how>urgent|critical|asap)\b").group(text, "how");
    let after =
        form!(r"\b(?P<how>low|medium|high|critical|urgent|top) prio(?:rity)?\b").group(text, "how");
    match said.or_else(|| text.get(before.or(after)?))? {
        "urgent" | "asap" | "critical" | "top" => Some(Priority::Critical),
        other => other.parse().ok(),
    }
}
