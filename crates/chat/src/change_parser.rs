//! Conversion of commands into a change or a clarifying question.

use std::collections::BTreeSet;
use std::ops::Range;

use tamma_core::budget::Grant;
use tamma_core::ids::TaskId;
use tamma_core::knowledge::EntryStatus;
use tamma_core::task::{Priority, TaskType};
use tamma_core::task_loop::{AnswerKind, State};

use crate::change::{ChatAction, LessonDecision, RequestedChange, TaskDraft};
use crate::command_parser::{COMMAND_WORDS, ChatCommand, Verb, parse_command, parse_commands};
use crate::interpretation::interpretation;
use crate::message_text::{MessageText, comparable_title, phrase};
use crate::task_reference::{self, TaskReference};
use crate::{ChatContext, ChatTask, Clarification, Intent, Interpretation};

/// Interprets the commands of a message, if it has any.
pub(crate) fn parse_change(
    message: &MessageText<'_>,
    context: &ChatContext,
) -> Option<Interpretation> {
    let mut commands = parse_commands(message, context);
    let target_text =
        |command: &ChatCommand| message.masked.get(command.target.clone()).unwrap_or_default();
    commands.retain(|command| {
        command.verb != Verb::Add || parse_new_task(message, command, context).is_some()
    });
    commands.retain(|command| {
        !command.is_statement
            || task_reference::is_task_name(target_text(command), context, command.verb)
    });
    let first = commands.first()?;
    let retracted = phrase!(
        r"\b(?:just kidding|kidding|jk|no way|never ?mind|scratch that|(?:wait|actually),? (?:no|don['’]?t|do not)|or not)\b"
    );
    if first.payload.is_none()
        && message.masked.get(first.start..).is_some_and(|text| retracted.is_match(text))
    {
        return Some(interpretation(Intent::Talk, 70, "retracted command"));
    }
    if commands
        .iter()
        .all(|command| phrase!(r"^\s*(?:nothing|none|no ?one)\b").is_match(target_text(command)))
    {
        return Some(interpretation(Intent::Talk, 80, "command without a target"));
    }
    let unclear = |unclear, explanation: &str| {
        Some(interpretation(Intent::Unclear(unclear), 70, explanation))
    };
    if is_conditional(message, first) {
        return unclear(Clarification::Condition, "conditional or scheduled command");
    }
    let is_about_lesson = phrase!(r"\b(?:lessons?|learnings?|knowledge|rules?|conventions?)\b")
        .is_match(&message.masked);
    let Some(command) = single_command(message, &commands, context) else {
        return unclear(Clarification::OneAtATime, "several commands, or one for several tasks");
    };
    let result = match command.verb {
        Verb::Add => parse_new_task(message, command, context)?,
        Verb::Retire => lesson_change(message, command, LessonDecision::Retire, context),
        Verb::Approve if is_about_lesson => {
            lesson_change(message, command, LessonDecision::Approve, context)
        }
        Verb::Reject if is_about_lesson => {
            lesson_change(message, command, LessonDecision::Reject, context)
        }
        // Removing a lesson means rejecting a proposed one, or retiring an approved one.
        Verb::Cancel if is_about_lesson => {
            lesson_change(message, command, LessonDecision::Reject, context)
                .or_else(|_| lesson_change(message, command, LessonDecision::Retire, context))
        }
        Verb::LooksGood => match target_task(message, command, context) {
            Ok(task) => Ok(RequestedChange::Task {
                task,
                action: task_action(message, command, task, context).ok()?,
            }),
            Err(_) => return None,
        },
        _ => target_task(message, command, context).and_then(|task| {
            Ok(RequestedChange::Task {
                task,
                action: task_action(message, command, task, context)?,
            })
        }),
    };
    Some(match result {
        Ok(change) => {
            let confidence = if command.clause_index == 0 { 90 } else { 80 };
            interpretation(Intent::Change(change), confidence, format!("command: {}", command.verb))
        }
        Err(clarification) => {
            let explanation = format!("incomplete command: {}", command.verb);
            interpretation(Intent::Unclear(clarification), 70, explanation)
        }
    })
}

/// Returns the only command of a message, if it has exactly one for one task.
fn single_command<'a>(
    message: &MessageText<'_>,
    commands: &'a [ChatCommand],
    context: &ChatContext,
) -> Option<&'a ChatCommand> {
    // "Looks good" and "give it 5 dollars" can accompany another command.
    let is_weak = |command: &&ChatCommand| matches!(command.verb, Verb::LooksGood | Verb::Grant);
    let main: Vec<_> = commands.iter().filter(|command| !is_weak(command)).collect();
    let (command, has_more) = match &*main {
        [] => (commands.first()?, false),
        [command] => (*command, false),
        [command, others @ ..] => {
            let names_task = |other: &ChatCommand| {
                let target_text = message.masked.get(other.target.clone()).unwrap_or_default();
                !matches!(
                    task_reference::find_task(target_text, context, |_| true),
                    TaskReference::Pronoun | TaskReference::Nothing
                )
            };
            // "Send it back, please add a test" says what is missing.
            let is_reason =
                |other: &ChatCommand| command.verb == Verb::Reject && other.verb == Verb::Add;
            let is_more = |other: &ChatCommand| other.verb != command.verb || names_task(other);
            (*command, others.iter().any(|other| is_more(other) && !is_reason(other)))
        }
    };
    let target_text = message.masked.get(command.target.clone()).unwrap_or_default();
    let names_all = command.verb != Verb::Add
        && phrase!(r"\b(?:all|everything|every|each|both|any|anything)\b").is_match(target_text);
    // A title that several tasks have is one name.
    let named = task_reference::named_tasks(&message.masked, context).into_iter().flatten();
    let titles = named.filter_map(|task| context.task(task)).map(|it| comparable_title(&it.title));
    let names_several = titles.collect::<BTreeSet<_>>().len() > 1 && command.payload.is_none();
    let names_another = command.payload.is_none() && another_target(message, command, context);
    let or = phrase!(r"\bor (?P<next>[a-z-]+)");
    let has_alternative = or
        .group(target_text, "next")
        .and_then(|at| target_text.get(at))
        .is_some_and(|next| COMMAND_WORDS.contains(&next));
    // "Cancel it, or rather pause it" and "approve it and the rest".
    let next = message.clauses.get(command.clause_index + 1);
    let next = next.map(|clause| message.clause_text(clause)).unwrap_or_default();
    let goes_on = phrase!(r"^\s*(?:or\b|(?:the )?(?:rest|others?)\b|(?:everything|all|every)\b)");
    let has_alternative = has_alternative || (command.payload.is_none() && goes_on.is_match(next));
    (!(has_more || names_all || names_several || names_another || has_alternative))
        .then_some(command)
}

/// Returns true if another part of the message is nothing but the name of another task: "approve
/// the export and the login". After "and", words that are no sentence are enough.
fn another_target(message: &MessageText<'_>, command: &ChatCommand, context: &ChatContext) -> bool {
    let tasks_in = |text: &str| match task_reference::find_task(text, context, |task| {
        command.verb.applies_to(task)
    }) {
        TaskReference::One(task) => vec![task],
        TaskReference::Many(tasks) => tasks,
        _ => Vec::new(),
    };
    let target_text = message.masked.get(target_range(message, command)).unwrap_or_default();
    let targets = tasks_in(target_text);
    let [target] = &*targets else { return false };
    let sentence = phrase!(
        r"\b(?:is|are|was|were|has|have|had|does|do|did|it|its|it['’]s|we|i|they|you|he|she|can|could|will|would|should|must|may|needs?|no|not|isn['’]?t|doesn['’]?t|don['’]?t|because)\b"
    );
    let own_end = message.clauses.get(command.clause_index).map_or(0, |own| own.range.end);
    let others = message.clauses.iter().enumerate();
    others.filter(|(index, _)| *index != command.clause_index).any(|(index, clause)| {
        let text = message.clause_text(clause);
        let named = tasks_in(text);
        let joint = message.masked.get(own_end..clause.range.start).unwrap_or_default();
        let is_joined = index == command.clause_index + 1
            && phrase!(r"\band\b|&").is_match(joint)
            && !sentence.is_match(text);
        !named.is_empty()
            && !named.contains(target)
            && (is_joined || task_reference::is_task_name(text, context, command.verb))
    })
}

/// Returns true if a command is conditional or for later. Text that is passed on is not considered.
fn is_conditional(message: &MessageText<'_>, command: &ChatCommand) -> bool {
    let end = if command.payload.is_some() { command.start } else { message.masked.len() };
    let text = message.masked.get(..end).unwrap_or_default();
    let text = text.replace("once more", "").replace("once again", "").replace("at once", "");
    let case = phrase!(
        r"\b(?:if|unless|once|whenever|when|provided|assuming|in case|as soon as|as long as)\b|^\W*should (?:the|it|this|that|they|any|all)\b"
    );
    let time = phrase!(
        r"\b(?:but not (?:now|yet|today)|soon|until|till|wait for|tomorrow|tonight|later|next week|after|next month|eod|end of (?:the )?(?:day|week)|this (?:afternoon|evening)|at (?:noon|midnight|lunch)|in (?:an?|half an|a few|a couple of|\d+|two|three) ?(?:h|hours?|mins?|minutes?|days?|weeks?|bit|while)|(?:on|before|after|by) (?:mon|tues|wednes|thurs|fri|satur|sun)day|at \d)\b"
    );
    case.is_match(&text)
        || (!matches!(command.verb, Verb::Pause | Verb::Acknowledge) && time.is_match(&text))
}

/// Returns the task that a command targets.
fn target_task(
    message: &MessageText<'_>,
    command: &ChatCommand,
    context: &ChatContext,
) -> Result<TaskId, Clarification> {
    let is_applicable = |task: &ChatTask| command.verb.applies_to(task);
    let check = |task: TaskId| match context.task(task) {
        Some(subject) if is_applicable(subject) => Ok(task),
        Some(_) => Err(Clarification::NotApplicable { task, verb: command.verb }),
        None => Err(Clarification::UnknownTask { description: String::new() }),
    };
    let which_task = |tasks| Err(Clarification::WhichTask { tasks, lessons: Vec::new() });
    let target_text = message.masked.get(target_range(message, command)).unwrap_or_default();
    // "Cancel the meeting about the export" is about no task.
    if phrase!(r"\b(?:meetings?|calls?|conflicts?|subscription|column)\b").is_match(target_text) {
        return Err(Clarification::UnknownTask { description: target_text.trim().to_owned() });
    }
    match task_reference::find_task(target_text, context, is_applicable) {
        TaskReference::One(task) => return check(task),
        TaskReference::Many(tasks) => return which_task(tasks),
        TaskReference::Unknown(description) => {
            return Err(Clarification::UnknownTask { description });
        }
        TaskReference::Missing => return Err(task_reference::missing_task()),
        TaskReference::Pronoun | TaskReference::Nothing => {}
    }
    // "The refund plan is fine, approve it": the task in the previous clause.
    let before =
        message.clauses.get(command.clause_index).map(|clause| clause.range.start..command.start);
    let clauses =
        message.clauses.iter().take(command.clause_index).rev().map(|clause| clause.range.clone());
    for range in before.into_iter().chain(clauses) {
        match task_reference::find_task(
            message.masked.get(range).unwrap_or_default(),
            context,
            is_applicable,
        ) {
            TaskReference::One(task) => return check(task),
            TaskReference::Many(tasks) => return which_task(tasks),
            _ => {}
        }
    }
    // "Cancel: the export" names the task after the command.
    let next = message.clauses.get(command.clause_index + 1);
    let next = next.map(|clause| message.clause_text(clause)).unwrap_or_default();
    if task_reference::is_task_name(next, context, command.verb)
        && let TaskReference::One(task) = task_reference::find_task(next, context, is_applicable)
    {
        return check(task);
    }
    if let Some(last) = context.last {
        return check(last);
    }
    let candidates: Vec<_> =
        context.tasks.iter().filter(|task| is_applicable(task)).map(|task| task.id).collect();
    match &*candidates {
        [task] => Ok(*task),
        [] => Err(Clarification::UnknownTask { description: String::new() }),
        _ => which_task(candidates),
    }
}

/// Returns the range that names the target, without the reason.
fn target_range(message: &MessageText<'_>, command: &ChatCommand) -> Range<usize> {
    let target_text = message.masked.get(command.target.clone()).unwrap_or_default();
    let end = phrase!(r"\b(?:because|since|cause|due to)\b").find(target_text);
    command.target.start..end.map_or(command.target.end, |end| command.target.start + end.start)
}

/// Returns the reason in the person's words: after "because", or the text that follows the command.
fn stated_reason(message: &MessageText<'_>, command: &ChatCommand) -> Option<String> {
    let clause = message.clauses.get(command.clause_index)?;
    let clause_rest = message.masked.get(command.start..clause.range.end)?;
    let start = if let Some(conjunction) =
        phrase!(r"\b(?:because|since|cause|due to)\s").find(clause_rest)
    {
        command.start + conjunction.end
    } else {
        let next = message.clauses.get(command.clause_index + 1)?;
        let text = message.clause_text(next);
        let not_a_reason = phrase!(
            r"^\s*(?:don['’]?t|do not|never|please|pls|thanks|thank you|thx|ok|how|what|when|why|who|where|tell me|let me|show|give me|send me|go|tamma|then|move on|go on|carry on)\b|--|^\s*rm\b|^\s*(?:it |that )?(?:looks|sounds) (?:good|fine|great|ok)|\$\d|\d+ (?:more )?(?:dollars|usd|runs)"
        );
        let is_command = parse_command(message, command.clause_index + 1, next)
            .is_some_and(|command| command.verb != Verb::Add);
        if next.is_question || not_a_reason.is_match(text) || is_command {
            return None;
        }
        next.range.start
    };
    let reason = message.original_text(start..message.original.len());
    let reason = reason.trim_end_matches(['.', '!', ' ']);
    (!reason.is_empty()).then(|| reason.to_owned())
}

/// Returns the action of a command on a task.
fn task_action(
    message: &MessageText<'_>,
    command: &ChatCommand,
    task: TaskId,
    context: &ChatContext,
) -> Result<ChatAction, Clarification> {
    let Some(subject) = context.task(task) else {
        return Err(Clarification::UnknownTask { description: String::new() });
    };
    let words = match command.verb {
        Verb::Modify | Verb::Reply | Verb::Convene => payload_text(message, command),
        _ => stated_reason(message, command),
    };
    let from = match command.verb {
        Verb::RollBack => command.start,
        // A number of the task is not its rating. "4 stars for it" names the task last.
        Verb::Rate => match message.masked.get(command.target.end..) {
            Some(after) if parse_stars(after).is_some() => command.target.end,
            _ => command.start,
        },
        _ => 0,
    };
    action_for(command.verb, subject, words, message.masked.get(from..).unwrap_or_default())
}

/// Returns the action of a verb on a task. `words` is the reason or the text to pass on; grants, stars
/// and the target of a rollback come from the text.
pub(crate) fn action_for(
    verb: Verb,
    task: &ChatTask,
    words: Option<String>,
    text: &str,
) -> Result<ChatAction, Clarification> {
    let allows = |answer| task.answers.contains(&answer);
    let reason = words;
    Ok(match verb {
        Verb::Approve | Verb::LooksGood if allows(AnswerKind::Approve) => {
            ChatAction::Approve { reason }
        }
        Verb::Approve | Verb::LooksGood => ChatAction::Accept { reason },
        Verb::Reject if allows(AnswerKind::Reject) => ChatAction::Reject { reason },
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
        Verb::Rate => ChatAction::Rate {
            stars: parse_stars(text).ok_or(Clarification::MissingRating { task: task.id })?,
            reason,
        },
        Verb::Convene => ChatAction::Convene {
            question: reason.ok_or(Clarification::MissingQuestion { task: task.id })?,
        },
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
fn payload_text(message: &MessageText<'_>, command: &ChatCommand) -> Option<String> {
    let text = message.original_text(command.payload.clone()?);
    let text = text.trim_end_matches(['.', '!', '?', ' ']);
    let quoted = || message.quoted.map(crate::message_text::sanitize_line);
    let text = Some(text.to_owned()).filter(|text| !text.is_empty()).or_else(quoted);
    text.filter(|text| !text.is_empty())
}

/// Parses extra runs, dollars and tokens.
fn parse_grant(text: &str) -> Grant {
    let number = |at: Option<Range<usize>>| at.and_then(|at| text.get(at));
    let usd = phrase!(r"\$ ?(?P<n>\d+(?:\.\d+)?)").group(text, "n");
    let usd = usd.or_else(|| {
        let in_words = phrase!(
            r"\b(?P<n>\d+(?:\.\d+)?) (?:more |extra |additional )?(?:dollars?|usd|bucks)\b"
        );
        in_words.group(text, "n")
    });
    let runs =
        phrase!(r"\b(?P<n>\d+) (?:more |extra |additional )?(?:runs?|iterations?|attempts?)\b");
    let tokens = phrase!(r"\b(?P<n>\d+) (?:more |extra |additional )?tokens?\b");
    Grant {
        usd: number(usd).and_then(|n| n.parse().ok()).unwrap_or_default(),
        iterations: number(runs.group(text, "n")).and_then(|n| n.parse().ok()).unwrap_or_default(),
        tokens: number(tokens.group(text, "n")).and_then(|n| n.parse().ok()).unwrap_or_default(),
    }
}

/// Parses a rating from 1 to 5: at the start of the text, or with its unit.
fn parse_stars(text: &str) -> Option<u8> {
    let first = phrase!(
        r"^\s*(?:with |at |as )?(?:an? )?(?P<n>[1-5]|one|two|three|four|five)\b(?:$|[^.]|\.(?:\s|$))"
    );
    let with_unit = phrase!(
        r"(?:^|[^.\w])(?P<n>[1-5]|one|two|three|four|five)(?: stars?\b| ?/ ?5\b| (?:out )?of (?:5|five)\b)"
    );
    let at = first.group(text, "n").or_else(|| with_unit.group(text, "n"))?;
    Some(match text.get(at)? {
        "one" => 1,
        "two" => 2,
        "three" => 3,
        "four" => 4,
        "five" => 5,
        digit => digit.parse().ok()?,
    })
}

/// Parses a state from common words for it.
fn parse_state(text: &str) -> Option<State> {
    let to = phrase!(
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
    message: &MessageText<'_>,
    command: &ChatCommand,
    decision: LessonDecision,
    context: &ChatContext,
) -> Result<RequestedChange, Clarification> {
    let status = if decision == LessonDecision::Retire {
        EntryStatus::Approved
    } else {
        EntryStatus::Pending
    };
    let target_text = message.masked.get(target_range(message, command)).unwrap_or_default();
    let text = if task_reference::content_words(target_text).is_empty() {
        &*message.masked
    } else {
        target_text
    };
    let lesson = task_reference::find_lesson(text, context, |lesson| lesson.status == status)?;
    Ok(RequestedChange::Lesson {
        lesson: lesson.id,
        decision,
        reason: stated_reason(message, command),
    })
}

/// Returns a new task, or an addition to an existing one. `None` if the text only resembles a
/// command.
fn parse_new_task(
    message: &MessageText<'_>,
    command: &ChatCommand,
    context: &ChatContext,
) -> Option<Result<RequestedChange, Clarification>> {
    let from = command.payload.clone()?.start;
    let end = message.sentence_end(from);
    let text = message.masked.get(from..end)?;
    if phrase!(r"^(?:update (?:on|me|us|about)\b|(?:need|want) (?:the|to|your|my|more|help|you|it|that|this)\b|move on\b|make (?:sure|sense))").is_match(text) {
        return None;
    }
    // "Fix it" is not enough for a task.
    if phrase!(r"^[a-z]+ (?:it|that|this|them|me|something)\b").is_match(text) {
        return Some(Err(Clarification::NotUnderstood));
    }
    let to =
        phrase!(r"\bto (?P<to>(?:the )?[a-z0-9 -]+ (?:one|task|plan)|it|that one|this one|#\d+)$");
    if let Some(to) = to.group(text, "to").and_then(|at| text.get(at)) {
        let target =
            match task_reference::find_task(to, context, |task| Verb::Modify.applies_to(task)) {
                TaskReference::Pronoun => context.last,
                TaskReference::One(task) => Some(task),
                _ => None,
            };
        if let Some(task) = target
            .filter(|task| context.task(*task).is_some_and(|task| Verb::Modify.applies_to(task)))
        {
            let action = ChatAction::Modify { words: message.original_text(from..end) };
            return Some(Ok(RequestedChange::Task { task, action }));
        }
    }
    // "Update the export: use tabs" changes a task if there is one of that name.
    let edited = phrase!(r"^(?:update|edit) (?P<name>[^:]+): (?P<words>.+)");
    if let (Some(name), Some(words)) = (edited.group(text, "name"), edited.group(text, "words")) {
        let name = text.get(name).unwrap_or_default();
        if let TaskReference::One(task) =
            task_reference::find_task(name, context, |task| Verb::Modify.applies_to(task))
            && task_reference::is_task_name(name, context, Verb::Modify)
            && context.task(task).is_some_and(|task| Verb::Modify.applies_to(task))
        {
            let words = message.original_text(from + words.start..from + words.end);
            let action = ChatAction::Modify { words };
            return Some(Ok(RequestedChange::Task { task, action }));
        }
    }
    let wish_end =
        phrase!(r"^(?:need|want|['’]d like|would like) ").find(text).map_or(0, |range| range.end);
    // "I need a summary, what was completed?" is a question.
    let lookup = phrase!(
        r"^an? (?:summary|overview|report|list|update|answer|figure|number|hint|reminder)\b"
    );
    let rest = text.get(wish_end..).unwrap_or_default();
    if wish_end > 0
        && (lookup.is_match(rest) || message.clauses.iter().any(|clause| clause.is_question))
    {
        return None;
    }
    let start = from + wish_end;
    let text = text.get(wish_end..)?;
    let kind = phrase!(
        r"^(?P<make>(?:new|add|create|file|open|make|log|raise|submit|register) )?(?:an? )?(?:new )?(?:(?P<how>urgent|critical|high|medium|low)(?:[- ]prio(?:rity)?)? )?(?P<noun>task|ticket|bugfix|bug|issue|chore|feature|docs|refactor|test|story)(?P<kind> (?:task|ticket|request))?(?:,? (?:with )?(?:urgent|critical|high|medium|low|top)[- ]prio(?:rity)?)?\b(?P<mark>\s*:\s*| (?:to|for|that|about) |\s*$| )"
    );
    let group = |name: &str| kind.group(text, name).and_then(|at| text.get(at));
    let noun = group("noun").unwrap_or_default();
    let mark = group("mark").unwrap_or_default();
    let is_created = group("make").is_some() || wish_end > 0;
    let is_task = matches!(noun, "task" | "ticket") || group("kind").is_some();
    let is_labelled = !noun.is_empty()
        && (mark.contains(':')
            || (is_created
                && (is_task
                    || (matches!(noun, "bug" | "issue" | "chore" | "story") && mark.len() > 1))));
    if !is_labelled
        && phrase!(
            r"^(?:new|file|open|task|bug|docs|chore|feature|test|raise|log|submit|register)\b"
        )
        .is_match(text)
    {
        return None;
    }
    let skip = if is_labelled { kind.group(text, "mark").map_or(0, |mark| mark.end) } else { 0 };
    let end = start + phrase!(r"(?:,? (?:please|pls|thanks|thank you|with|(?:low|medium|high|critical|urgent|top) prio(?:rity)?))*\s*$").find(text).map_or(text.len(), |tail| tail.start);
    let title = message.original_text(start + skip..end.max(start + skip));
    // A quoted title comes without its marks.
    let marks: &[char] = &['"', '“', '”', '\'', '‘', '’', '`'];
    let is_quoted = title.starts_with(marks) && title.ends_with(marks) && title.len() > 2;
    let title = if is_quoted { title.trim_matches(marks).to_owned() } else { title };
    if title.is_empty() {
        return Some(Err(Clarification::NotUnderstood));
    }
    let rest = message.original_text(message.sentence_end(from)..message.original.len());
    let rest = rest.trim_start_matches(['.', '!', '?', ' ']);
    let description = (!rest.is_empty()
        && !phrase!(r"(?i)^(?:thanks|thank you|thx|please)\b").is_match(rest))
    .then(|| rest.to_owned());
    Some(Ok(RequestedChange::Add(TaskDraft {
        r#type: task_type(noun, &title.to_ascii_lowercase()),
        priority: parse_priority(&message.masked, group("how")),
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
        || phrase!(r"^(?:add|write|create)\b[^,]*\btests?\b|^(?:test|cover) ").is_match(title)
    {
        TaskType::Test
    } else if phrase!(r"^(?:document|describe)\b|\b(?:readme|docs|documentation|changelog)\b")
        .is_match(title)
    {
        TaskType::Docs
    } else if phrase!(r"^fix\b|\b(?:bug|crash|crashes|broken|fails?|error|wrong|regression)\b")
        .is_match(title)
    {
        TaskType::Bugfix
    } else if phrase!(r"^(?:refactor|rename|extract|simplify|restructure|split|move)\b")
        .is_match(title)
    {
        TaskType::Refactor
    } else if phrase!(
        r"^(?:bump|upgrade|clean ?up|remove|delete|get rid of)\b|\b(?:dependenc(?:y|ies)|lint)\b"
    )
    .is_match(title)
    {
        TaskType::Chore
    } else {
        TaskType::Feature
    }
}

fn parse_priority(text: &str, stated: Option<&str>) -> Option<Priority> {
    let before = phrase!(r"^\s*(?P<how>urgent|critical|asap)\b").group(text, "how");
    let after = phrase!(r"\b(?P<how>low|medium|high|critical|urgent|top) prio(?:rity)?\b")
        .group(text, "how");
    match stated.or_else(|| text.get(before.or(after)?))? {
        "urgent" | "asap" | "critical" | "top" => Some(Priority::Critical),
        other => other.parse().ok(),
    }
}
