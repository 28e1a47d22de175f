//! Parser for questions and confirmations.

use std::ops::Range;

use tamma_core::ids::TaskId;

use crate::command_parser::has_command_word;
use crate::interpretation::interpretation;
use crate::message_text::{MessageText, phrase};
use crate::task_reference::{self, TaskReference};
use crate::{
    Aspect, ChatContext, Clarification, Intent, Interpretation, Period, TaskSelection, Topic,
};

/// Returns true if the message is a plain confirmation.
pub(crate) fn is_yes(message: &MessageText<'_>) -> bool {
    let only = phrase!(
        r"^[\s,.!]*(?:(?:yes|y|yep|yeah|yup|ok|okay|k|sure|confirm|confirmed|go ahead|go for it|do it|do that|please do|absolutely|of course|affirmative|go|please|pls|thanks|thank you|now)\b[\s,.!]*)+$"
    );
    let yes = phrase!(
        r"\b(?:yes|y|yep|yeah|yup|ok|okay|k|sure|confirm|confirmed|go|do it|do that|please do|absolutely|of course|affirmative)\b"
    );
    only.is_match(&message.masked) && yes.is_match(&message.masked)
}

/// Interprets an answer to the proposal just shown. Runs first: directly after a proposal, "cancel"
/// discards the proposal.
pub(crate) fn parse_confirmation(
    message: &MessageText<'_>,
    context: &ChatContext,
) -> Option<Interpretation> {
    let text = &*message.masked;
    let unclear = |unclear, explanation: &str| {
        Some(interpretation(Intent::Unclear(unclear), 70, explanation))
    };
    let explicit = phrase!(r"^\W*(?:yes|yep|yeah|y|do it|go ahead|confirm|confirmed)\b");
    if is_yes(message) {
        return match context.proposed {
            true => Some(interpretation(Intent::Confirm, 95, "plain confirmation")),
            false if explicit.is_match(text) => {
                unclear(Clarification::NothingToConfirm, "nothing to confirm")
            }
            false => None,
        };
    }
    let yes = phrase!(r"^\W*(?:yes|yep|yeah|sure|ok|okay)\b");
    if yes.is_match(text)
        && phrase!(r"\b(?:to (?:all|everything|any)|from now on|always)\b").is_match(text)
    {
        return unclear(Clarification::OneAtATime, "confirmation of several commands");
    }
    if !context.proposed {
        return None;
    }
    if yes.is_match(text)
        && phrase!(r"\b(?:if|unless|once|when|as soon as|only|after)\b").is_match(text)
    {
        return unclear(Clarification::Condition, "conditional confirmation");
    }
    let no = phrase!(
        r"^[\s,.!]*(?:(?:hmm+|wait|no|nope|nah|n|never ?mind|please|pls|thanks|don['’]?t|do not|do that|do it|not|yet|now|sure|so fast|stop|abort|cancel|that|it|forget|leave|hold on|hang on|rather|i['’]?m|am|i|actually|sorry|better|a|second|sec|minute|moment|bit|let['’]?s)\b[\s,.!]*)+$"
    );
    let negative = phrase!(
        r"\b(?:no|nope|nah|n|never ?mind|don['’]?t|not|stop|abort|cancel|forget|leave|wait|hold|hang)\b"
    );
    (no.is_match(text) && negative.is_match(text))
        .then(|| interpretation(Intent::Decline, 90, "plain refusal"))
}

/// Interprets a message without a command.
pub(crate) fn parse_question(message: &MessageText<'_>, context: &ChatContext) -> Interpretation {
    let text = message.masked.trim();
    let question = is_question(message);
    let reference = task_reference::find_task(text, context, |_| true);
    let names_task = matches!(reference, TaskReference::One(_) | TaskReference::Many(_));
    let unclear =
        |unclear, explanation: &str| interpretation(Intent::Unclear(unclear), 60, explanation);

    if is_help(text) {
        return interpretation(Intent::Help, 85, "question about using Tamma");
    }
    // A quoted name that no task has is not somebody else's text.
    if reference == TaskReference::Missing
        && !has_command_word(text)
        && (is_status(text) || is_about_cost(text) || parse_aspect(text).is_some())
    {
        return unclear(task_reference::missing_task(), "question about an unknown task");
    }
    if let Some(small_talk) = parse_talk(message, question) {
        return small_talk;
    }
    if is_about_lessons(text) {
        let intent = if phrase!(r"\b(?:should|shall|why|who|would)\b").is_match(text) {
            Intent::Ask { task: None, topic: Topic::Knowledge }
        } else {
            Intent::Lessons { period: parse_period(text), search: parse_search(message) }
        };
        return interpretation(intent, 80, "question about the knowledge base");
    }
    if has_several_questions(message) {
        return unclear(Clarification::OneAtATime, "two questions");
    }
    if is_about_cost(text) {
        let (period, explanation) = (parse_period(text), "question about cost");
        // Cost in a period covers all tasks, unless the message points at one.
        if period.is_some() && matches!(reference, TaskReference::Nothing) {
            return interpretation(Intent::Cost { task: None, period }, 85, explanation);
        }
        return match referenced_task(&reference, context, false) {
            Ok(task) => interpretation(Intent::Cost { task, period }, 85, explanation),
            Err(clarification) => unclear(clarification, explanation),
        };
    }
    if !names_task && !phrase!(r"\bwhy\b").is_match(text) && is_inbox(text) {
        return interpretation(Intent::Inbox, 85, "question about the inbox");
    }
    if let Some(aspect) = parse_aspect(text) {
        return match referenced_task(&reference, context, true) {
            Ok(Some(task)) => {
                interpretation(Intent::Show { task, aspect }, 85, "request to show a task")
            }
            Ok(None) => unclear(Clarification::NotUnderstood, "task is missing"),
            Err(clarification) => unclear(clarification, "request to show part of a task"),
        };
    }
    if is_list(text, names_task, context) {
        let intent = Intent::List {
            selection: parse_selection(text),
            period: parse_period(text),
            search: parse_search(message),
        };
        return interpretation(intent, 80, "request to list tasks");
    }
    let is_tag_question =
        phrase!(r"\b(?:right|correct|no|isn['’]?t it|didn['’]?t it|hasn['’]?t it)\s*\?$")
            .is_match(text);
    if !is_tag_question && is_work_question(text) {
        return match referenced_task(&reference, context, false) {
            Ok(task) => interpretation(
                Intent::Ask { task, topic: question_topic(text) },
                75,
                "question about the work",
            ),
            Err(clarification) => unclear(clarification, "question about the work"),
        };
    }
    if is_tag_question || is_status(text) {
        return match referenced_task(&reference, context, true) {
            Ok(Some(task)) => {
                interpretation(Intent::Status { task }, 85, "question about a task's status")
            }
            Ok(None) => interpretation(
                Intent::List {
                    selection: TaskSelection::Open,
                    period: parse_period(text),
                    search: None,
                },
                60,
                "question about the overall status",
            ),
            Err(clarification) => unclear(clarification, "question about a task's status"),
        };
    }
    if context.proposed && phrase!(r"\b(?:yes|confirm\w*|approve\w*)\b").is_match(text) {
        return unclear(
            Clarification::NothingToConfirm,
            "mentions a confirmation without giving one",
        );
    }
    fallback(message, question, &reference, context)
}

/// Returns `true` if the clauses of a message ask about different things.
fn has_several_questions(message: &MessageText<'_>) -> bool {
    let groups = message.clauses.iter().map(|clause| question_group(message.clause_text(clause)));
    let mut groups: Vec<_> = groups.flatten().collect();
    groups.dedup();
    groups.len() > 1
}

fn is_question(message: &MessageText<'_>) -> bool {
    let question_start = phrase!(
        r"^\W*(?:(?:so|and|hey|hi|hello|yo|ok|okay|well|but|btw|also|um|then|please|pls|good morning|morning|quick (?:question|check|one))\W+)*(?:what|whats|what['’]s|where['’]?s|how['’]s|who|who['’]?s|why|when|where|which|how|hows|hw|is|are|was|were|does|do|did|has|have|can|could|should|shall|would|will|am|may|any)\b"
    );
    message
        .clauses
        .iter()
        .any(|clause| clause.is_question || question_start.is_match(message.clause_text(clause)))
}

fn is_help(text: &str) -> bool {
    phrase!(r"^/?help\b|\bwho are you\b|\bwhat (?:can|do) you (?:do|understand)\b|\bwhat commands\b|\bwhat (?:can|could|should|may) i (?:ask|say|tell|type|write)\b|\bhow (?:do|can|would) (?:i|we|you)\b|\bhow do(?:es)? .* work\b|\bdifference between\b|^what do(?:es)? (?:\x1a+|an? )?\w* ?(?:mean|do)\b|\bcommands do you\b|^\W*what(?:['’]?s| is| are) (?:an? |the )?(?:gates?|council|tiers?|engines?|iterations?|pipelines?|salvage|override|blockers?|ceremony|soft timeouts?)\W*$").is_match(text)
}

/// Recognises small talk: greetings, thanks, and commands that are only mentioned.
fn parse_talk(message: &MessageText<'_>, question: bool) -> Option<Interpretation> {
    let text = message.masked.trim();
    let talk = |explanation: &str| Some(interpretation(Intent::Talk, 75, explanation));
    if phrase!(r"^[\s\x1a\W]*$").is_match(text) && message.has_quotes() {
        return talk("only quoted text");
    }
    if phrase!(r"\b(?:no way|just kidding)\b").is_match(text) {
        return talk("retracted");
    }
    if question {
        return None;
    }
    let reported = phrase!(
        r"\b(?:says?|said|writes?|wrote|told|thinks?|thought|wants?|asked|asks|suggests?) (?:that|to|me|us|we|i)\b"
    );
    if reported.is_match(text)
        && has_command_word(text)
        && !phrase!(r"^\W*i (?:say|said|want)\b").is_match(text)
    {
        return talk("reports what someone else wants");
    }
    if phrase!(r"\b(?:maybe|perhaps|probably)\b.*\b(?:should|could|might|ought)\b|\b(?:someone|somebody|we) (?:should|ought to)\b").is_match(text)
        && has_command_word(text)
    {
        return Some(interpretation(Intent::Unclear(Clarification::ConfirmIntent), 60, "possibly a request"));
    }
    let not = phrase!(
        r"\b(?:not|don['’]?t|doesn['’]?t|never|haven['’]?t|hasn['’]?t|didn['’]?t|can['’]?t|cannot|won['’]?t|shouldn['’]?t|wouldn['’]?t|nobody|no one|no need|without|no circumstances|refrain|avoid)\b"
    );
    let action_word = phrase!(
        r"\b(?:approv|cancel|reject|paus|resum|retr[yi]|skip|abandon|overrid|roll(?:ed|ing)? |roll ?back|accept|merg|delete|deleting|confirm|do anything)"
    );
    if not.is_match(text) && action_word.is_match(text) {
        return talk("negated command");
    }
    if action_word.is_match(text)
        && !phrase!(r"^\W*(?:show|list|tell|give|explain|find|let me)\b").is_match(text)
    {
        let mentioned = phrase!(
            r"\b(?:i['’]?d|if|imagine|suppose|could|would|should|thinking|wants?|yesterday|approved|cancelled|canceled|rejected|paused|retried|skipped|disable|treat|will|have to|has to|need to|going to|later|wrote|says?|said|printing|been)\b"
        );
        if mentioned.is_match(text)
            && !phrase!(r"^\W*(?:which|list|show)\b|\btasks\b").is_match(text)
        {
            return talk("mentions a command without requesting it");
        }
    }
    if message.has_quotes() && !phrase!(r"^\W*(?:explain|show|tell)\b").is_match(text) {
        return talk("reports what someone else said");
    }
    if text.ends_with('!') && !has_command_word(text) {
        return talk("exclamation");
    }
    phrase!(
        r"^\W*(?:hi|hello|hey|yo|thanks|thank you|thx|cheers|bye|good (?:morning|evening|night|afternoon|job|work)|nice|great|cool|awesome|appreciate|back from|that was|wow|lol|haha\w*|welcome|sorry|see you|ok|okay|alright|never ?mind|no|nope|sure|congrat\w*|well done)\b|\b(?:you['’]?re|you are) (?:doing|great|awesome|the best|welcome)|^\W*i['’]?(?:m| am) (?:off|back|away|here|out|happy|tired|done)\b|\bthank (?:you|u)\b|^(?:looks|sounds) "
    )
    .is_match(text)
    .then(|| interpretation(Intent::Talk, 75, "small talk"))
}

fn is_about_lessons(text: &str) -> bool {
    phrase!(r"\b(?:lessons?|learnings?|knowledge|conventions?|prohibitions?|guidelines?)\b|\bwe learn(?:ed|t)?\b|\bteam know|\brules? (?:about|for|on)\b").is_match(text)
}

fn is_about_cost(text: &str) -> bool {
    phrase!(r"\b(?:costs?|spend|spent|spending|expensive|budget|dollars?|usd|tokens?|money|burn(?:ed|t)?|price|bill)\b|\$").is_match(text)
        && !phrase!(r"\b(?:why|how come|because|due to)\b").is_match(text)
}

/// Returns the group of a question, to detect two different questions in one message.
fn question_group(text: &str) -> Option<u8> {
    if !phrase!(r"^\W*(?:what|how|which|who|show|list)").is_match(text) {
        None
    } else if is_about_cost(text) {
        Some(1)
    } else if phrase!(r"\b(?:running|failed|stuck|paused|waiting|waits)\b").is_match(text) {
        Some(2)
    } else {
        None
    }
}

fn is_inbox(text: &str) -> bool {
    phrase!(
        r"\binbox\b|\b(?:for|on|from) me\b|\bmy (?:approval|attention|plate|decision|review|turn|input|answer|reply|queue|todo|sign-?off)\b|\bi owe\b|\btodos?\b|\bapprovals? (?:outstanding|open|pending|left|missing|due)\b|\b(?:outstanding|open|pending) approvals?\b|\bwhat should i (?:look at|do|start with|work on|tackle)\b|\b(?:waiting|waits?|pending|need|needs|ready) (?:for |my |an? )*(?:approval|review|decision)|\bi (?:should|need to|have to|must|can|could) (?:decide|approve|review|answer|look|do)|\b(?:can|should|must) i (?:approve|decide|review|answer|do)\b.*\b(?:now|next|today)|\bwhat (?:can|should|do|must) i (?:need to |have to )?(?:approve|decide|review|answer)|\bquestions? from\b|\bopen questions?\b|\bquestions? (?:is|are) (?:still )?open\b|\b(?:anything|something|nothing|what(?: is|['’]s)?|more) (?:left |there )?(?:for me )?to (?:approve|decide|review|answer|sign|confirm)\b"
    )
    .is_match(text)
}

fn parse_aspect(text: &str) -> Option<Aspect> {
    let looks_like = phrase!(
        r"\bwhat (?:does|do|did|will) .*\b(?P<what>plan|diff|patch|change)s?\b.*\blooks? like\b"
    );
    if let Some(at) = looks_like.group(text, "what") {
        return Some(if text.get(at) == Some("plan") { Aspect::Plan } else { Aspect::Diff });
    }
    if phrase!(r"\b(?:why|who|which|how many|how come|should|explain|does|do)\b").is_match(text) {
        return None;
    }
    let named_aspect = phrase!(
        r"(?:^\W*(?:(?:so|hi|hey|ok|and) )*|\b(?:show|see|print|read|give|open|get|view|display|pull up|bring up|look at|check|want|need|let|what['’]?s|what is|in)\b.*?)\b(?P<what>plan|diff|patch|log|logs|transcript|output|history|events|timeline|report|summary|code changes|what it changed|what (?:has )?changed|changes it made)\b"
    );
    if phrase!(r"\bbeen (?:printing|saying|logging|writing)\b").is_match(text) {
        return Some(Aspect::Log);
    }
    let happened = phrase!(r"\bwhat(?:['’]?s| has| have)? happened (?:to|with|on|in)\b");
    if happened.is_match(text) {
        return Some(Aspect::History);
    }
    let leading_aspect =
        phrase!(r"\b(?P<what>output|log|logs|diff|plan|history|report)\b (?:of|for|on|from)\b");
    let at = named_aspect.group(text, "what").or_else(|| leading_aspect.group(text, "what"))?;
    Some(match text.get(at)? {
        "plan" => Aspect::Plan,
        "log" | "logs" | "transcript" | "output" => Aspect::Log,
        "history" | "events" | "timeline" => Aspect::History,
        "report" | "summary" => Aspect::Report,
        _ => Aspect::Diff,
    })
}

fn is_list(text: &str, names_task: bool, context: &ChatContext) -> bool {
    if phrase!(r"\btasks (?:about|on|with|that mention|mentioning|for)\b").is_match(text) {
        return true;
    }
    if phrase!(r"^\W*(?:status|overview|summary)\W*$").is_match(text) {
        return context.last.is_none();
    }
    !names_task
        && phrase!(
            r"\b(?:tasks|jobs|ones|everything|rundown|recap|agents (?:busy|active|idle)|overview|agents working|going on)\b|^\W*(?:list|tasks)\W*$|\bany(?:thing|one)?\b.*\b(?:stuck|running|fail\w*|broken?|break|blocked|paused|done|wrong|new|red|crash\w*)\b|^\W*(?:so |hi |hey |ok )*what(?:['’]?s| is| are| has| have| did| got| was| were)?\b.*\b(?:running|fail(?:ed|ing|s)?|paused|stuck|done|finish(?:ed)?|cancell?ed|completed?|progress|queued?|review|planned|blocked|broke|merged|shipped|delivered)\b"
        )
        .is_match(text)
}

fn parse_selection(text: &str) -> TaskSelection {
    let kinds = [
        (TaskSelection::Failed, phrase!(r"\b(?:fail\w*|broken?|break|went wrong|crash\w*|red)\b")),
        (
            TaskSelection::Open,
            phrase!(r"\b(?:open|unfinished|outstanding) (?:tasks?|ones?|work|tickets?|jobs?)\b"),
        ),
        (TaskSelection::Cancelled, phrase!(r"\bcancell?ed\b")),
        (TaskSelection::Paused, phrase!(r"\b(?:paused|on hold)\b")),
        (TaskSelection::Stuck, phrase!(r"\b(?:stuck|blocked|escalated)\b")),
        (TaskSelection::Running, phrase!(r"\b(?:running|in progress|working on|active|busy)\b")),
        (
            TaskSelection::Completed,
            phrase!(r"\b(?:finish(?:ed)?|done|completed?|shipped|merged|delivered)\b"),
        ),
        (TaskSelection::Queued, phrase!(r"\b(?:queued?|pending|backlog)\b")),
        (TaskSelection::Planning, phrase!(r"\bplann(?:ed|ing)\b")),
        (TaskSelection::Review, phrase!(r"\breview(?:ed)?\b")),
        (TaskSelection::All, phrase!(r"\ball\b.*\btasks\b|\bevery task\b")),
    ];
    kinds
        .iter()
        .find(|(_, phrase)| phrase.is_match(text))
        .map_or(TaskSelection::Open, |(selection, _)| *selection)
}

fn parse_period(text: &str) -> Option<Period> {
    let periods = [
        (Period::Today, phrase!(r"\b(?:today|so far today|this morning)\b")),
        (Period::Yesterday, phrase!(r"\byesterday\b")),
        (Period::ThisWeek, phrase!(r"\bthis week\b")),
        (Period::LastWeek, phrase!(r"\blast week\b")),
        (Period::ThisMonth, phrase!(r"\bthis month\b")),
        (Period::LastMonth, phrase!(r"\blast month\b")),
    ];
    periods.iter().find(|(_, phrase)| phrase.is_match(text)).map(|(period, _)| *period)
}

fn parse_search(message: &MessageText<'_>) -> Option<String> {
    let about = phrase!(
        r"\b(?:tasks|lessons?|learnings?|rules?|know) (?:about|on|with|that mention|mentioning|for) (?P<what>[^?.!\n]+)"
    );
    let at: Range<usize> = about.group(&message.masked, "what")?;
    Some(message.original_text(at)).filter(|text| !text.is_empty())
}

fn is_work_question(text: &str) -> bool {
    phrase!(
        r"\b(?:why|who|whose|how come|explain|should (?:i|we)|shall (?:i|we)|what if|what happens|what would|what will|(?:safe|wise|ok|okay|possible|worth|smart|good idea) to|a good idea|allowed to|may (?:i|we)|can (?:i|we)|could (?:i|we)|would (?:it|a|an|that|this)|suppose|options|risk|risky|attempts|error|council|model)\b|\bif (?:i|we|you)\b|^\W*(?:could|would|will|does|do (?:i|we|you|they|the|any|it|these|those|all|tests?|gates?)|did the (?:agent|council|model|plan|change|review)|should)\b|^\W*(?:which|what) (?:files?|tests?|rules?|gates?|lines?|did|does|do|was|went)\b|\bafter (?:i|we|you)\b|\b(?:is|are) that (?:ok|fine|right|normal)\b|\bor \w+ .*\?|\bwhat does that mean\b"
    )
    .is_match(text)
}

/// Returns the topic of a question about the work.
pub(crate) fn question_topic(text: &str) -> Topic {
    let topics = [
        (Topic::People, phrase!(r"\b(?:who|whose|by whom)\b")),
        (
            Topic::Consequence,
            phrase!(
                r"\bif (?:i|we|you)\b|\bwhat (?:happens|would|will)\b|\b(?:should|shall|can|may|could) (?:i|we)\b|\boptions\b|\b(?:safe|wise|ok|okay|possible) to\b"
            ),
        ),
        (Topic::Risk, phrase!(r"\b(?:risk\w*|danger\w*)\b")),
        (Topic::Time, phrase!(r"\b(?:how long|since when|when (?:did|was|were|has)|took|take)\b")),
        (Topic::Council, phrase!(r"\b(?:council|opinions?)\b")),
        (
            Topic::Knowledge,
            phrase!(r"\b(?:lessons?|knowledge|rules?|prohibitions?|conventions?)\b"),
        ),
        (
            Topic::Waiting,
            phrase!(
                r"\b(?:wait\w*|blocked|blocking|holding|needs? (?:me|us|my|a|an|human|input)|stuck|want from|paused|stopped|escalat\w*|ask(?:s|ed|ing)?)\b"
            ),
        ),
        (
            Topic::Change,
            phrase!(
                r"\b(?:chang\w*|files?|lines?|diff|patch|touch\w*|edit\w*|commit\w*|did (?:it|the agent|you) (?:do|make|write|add))\b"
            ),
        ),
        (
            Topic::Failure,
            phrase!(
                r"\b(?:why|fail\w*|wrong|brok\w*|error\w*|red|tests?|gates?|review\w*|crash\w*|tr(?:y|ied)|attempts?|pass\w*)\b"
            ),
        ),
    ];
    topics
        .iter()
        .find(|(_, phrase)| phrase.is_match(text))
        .map_or(Topic::Overview, |(topic, _)| *topic)
}

fn is_status(text: &str) -> bool {
    phrase!(
        r"\b(?:status|satus|state|update|progress|news|how['’]?s|how is|how are|hows|how far|where|when will|stands?|doing|going|next for|happening|waiting|up with|tell me about|what about|how about|still|eta)\b|^\W*(?:so |hi |hey )*(?:is|are|was|has|have|did|does)\b|^\W*(?:show|open|see|view|display|describe)\b"
    )
    .is_match(text)
}

/// Returns the task that a question refers to; the one mentioned last if it names none.
fn referenced_task(
    reference: &TaskReference,
    context: &ChatContext,
    needed: bool,
) -> Result<Option<TaskId>, Clarification> {
    match reference {
        TaskReference::One(task) => Ok(Some(*task)),
        TaskReference::Many(tasks) => {
            Err(Clarification::WhichTask { tasks: tasks.clone(), lessons: Vec::new() })
        }
        TaskReference::Unknown(description) if needed => {
            Err(Clarification::UnknownTask { description: description.clone() })
        }
        TaskReference::Missing => Err(task_reference::missing_task()),
        TaskReference::Pronoun | TaskReference::Nothing | TaskReference::Unknown(_) => {
            Ok(context.last)
        }
    }
}

/// Handles messages that nothing else matches: a question is about the work, the rest is not
/// understood.
fn fallback(
    message: &MessageText<'_>,
    question: bool,
    reference: &TaskReference,
    context: &ChatContext,
) -> Interpretation {
    let word_count = message.masked.split_whitespace().count();
    if question && word_count > 2 {
        let task = match referenced_task(reference, context, false) {
            Err(missing @ Clarification::UnknownTask { .. }) => {
                return interpretation(Intent::Unclear(missing), 40, "question");
            }
            task => task.ok().flatten(),
        };
        return interpretation(
            Intent::Ask { task, topic: question_topic(&message.masked) },
            40,
            "question",
        );
    }
    interpretation(Intent::Unclear(Clarification::NotUnderstood), 40, "nothing recognised")
}
