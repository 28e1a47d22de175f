//! Parser for questions and confirmations.

use std::ops::Range;

use tamma_core::ids::TaskId;
use tamma_core::task_loop::State;

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
        r"^[\s,.!]*(?:(?:yes|y|yep|yeah|yup|ok|okay|k|sure|confirm|confirmed|go ahead|go for it|do it|do that|please do|absolutely|of course|affirmative|correct|exactly|(?:that['’]?s )?(?:right|correct|fine|ok|okay)|that['’]?s it|alright|sounds (?:good|right)|sure thing|fine by me|make it so|proceed|go|please|pls|thanks|thank you|thx|now|then)\b[\s,.!]*)+$"
    );
    let yes = phrase!(
        r"\b(?:yes|y|yep|yeah|yup|ok|okay|k|sure|confirm|confirmed|go|do it|do that|please do|absolutely|of course|affirmative|correct|exactly|right|sounds (?:good|right)|fine by me|make it so|proceed)\b"
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
        r"^[\s,.!]*(?:(?:hmm+|wait|no|nope|nah|n|never ?mind|nvm|please|pls|thanks|thank you|thx|don['’]?t|do not|do that|do it|not|yet|now|sure|so fast|stop|abort|cancel|that['’]?s|that|it|forget|leave|running|alone|be|open|as it is|as is|like that|wrong (?:one|task|thing)|i meant|something else|the other one|wrong|what i (?:meant|mean|wanted)|changed my mind|maybe later|later|after all|oops|oh|hold on|hang on|rather|i['’]?m|am|i|actually|sorry|better|a|second|sec|minute|moment|bit|let['’]?s)\b[\s,.!]*)+$"
    );
    let negative = phrase!(
        r"\b(?:no|nope|nah|n|never ?mind|nvm|don['’]?t|not|stop|abort|cancel|forget|leave|wait|hold|hang|wrong|changed my mind)\b"
    );
    (no.is_match(text) && negative.is_match(text))
        .then(|| interpretation(Intent::Decline, 90, "plain refusal"))
}

/// Interprets a message without a command.
pub(crate) fn parse_question(message: &MessageText<'_>, context: &ChatContext) -> Interpretation {
    let text = message.masked.trim();
    let question = is_question(message);
    let reference = task_reference::find_subject(text, context);
    let names_task = matches!(reference, TaskReference::One(_) | TaskReference::Many(_));
    let unclear =
        |unclear, explanation: &str| interpretation(Intent::Unclear(unclear), 60, explanation);

    if is_help(text, names_task) {
        return interpretation(Intent::Help, 85, "question about using Tamma");
    }
    // A quoted name that no task has is not somebody else's text.
    if reference == TaskReference::Missing
        && !has_command_word(text)
        && (is_status(text) || is_about_cost(text) || parse_aspect(text).is_some())
    {
        return unclear(task_reference::missing_task(), "question about an unknown task");
    }
    if let Some(small_talk) = parse_talk(message, question, names_task) {
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
    if let Some(aspect) = asked_aspect(text, names_task, context) {
        let reference = preferred_for(aspect, reference, context);
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
    let asks_state = asks_state(text);
    if !is_tag_question && !asks_state && is_work_question(text) {
        return match referenced_task(&reference, context, false) {
            Ok(task) => interpretation(
                Intent::Ask { task, topic: question_topic(text) },
                75,
                "question about the work",
            ),
            Err(clarification) => unclear(clarification, "question about the work"),
        };
    }
    if is_tag_question || asks_state || is_status(text) {
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
        r"^[^\w\x1a]*(?:(?:so|and|hey|hi|hello|yo|ok|okay|well|but|btw|also|um|then|please|pls|good morning|morning|quick (?:question|check|one))\W+)*(?:what|whats|what['’]s|where['’]?s|how['’]s|who|who['’]?s|why|when|where|which|how|hows|hw|where['’]?s|is|are|was|were|does|do (?:i|we|you|u|they|these|those|any|all|it|our|my|tests?|gates?)|did|has|have (?:i|we|you|u|they|the|any|all)|can|could|should|shall|would|will (?:i|we|you|u|it|the|this|that|they|there)|am i|may|any|anything|anyone|(?:if|when) (?:i|we|you|u) .*\b(?:what|how|will|would|does|do|can))\b"
    );
    message
        .clauses
        .iter()
        .any(|clause| clause.is_question || question_start.is_match(message.clause_text(clause)))
}

/// Returns true for a question about using Tamma. How something in a task works is a question about
/// the work.
fn is_help(text: &str, names_task: bool) -> bool {
    let about_tamma = phrase!(
        r"^/?help\b|\bhelp(?: me| please| pls)?\W*$|^\W*how to\b|\bhow (?:this|it|tamma) works\b|\bthings you can do\b|\bwhat (?:is|are) (?:the )?(?:lessons?|ratings?|stories|gates?|approvals?|plans?|the council) for\W*$|\bexplain the (?:approval|review|rating|planning) process\b|\bwho (?:are|r) (?:you|u)\b|\b(?:who|what)(?:['’]?s| is) tamma\b|^\W*what are you\W*$|\bwhat (?:can|do) (?:you|u) (?:do|understand)\b|\b(?:sort|kinds?|types?) of (?:things|messages|questions|commands)\b|\b(?:what|which|all|list of|the|available|your) commands\b|\bcommands do you\b|\bwhat (?:can|could|should|may) i (?:ask|say|tell|type|write)\b|\bwhat can i do(?: here| with (?:you|this|tamma))?\W*$|\bhow (?:do|can|could|would|should) i\b|\bhow do(?:es)? (?:this|it|that|tamma|the chat|ratings?|approvals?|the council|lessons?|reviews?|plans?|budgets?|the budget|pausing|retries|stories|pipelines)(?: thing)? work\b|\bdifference between\b|^what do(?:es)? (?:\x1a+|an? )?\w* ?(?:mean|do)\b|^\W*what(?:['’]?s| is| are) (?:an? |the )?(?:gates?|council|tiers?|engines?|iterations?|pipelines?|salvage|override|blockers?|ceremony|soft timeouts?|knowledge base|inbox)\W*$|^\W*(?:so )?what(?:['’]?s| is| are) (?:an? (?:task|plan|lesson|rule|story|review|agent)|this(?: thing| bot)?(?: for| about)?)\W*$|\bis there (?:an? |any )?(?:manual|documentation|docs|guide|tutorial|help)\W*$|\b(?:what happens|what if)\b.*\b(?:reject|approve|cancel|pause|abandon|skip|accept|retry|retire|rate)\b.* an? (?:plan|task|lesson|change)\b|\b(?:generally|in general)\W*$"
    );
    let how = phrase!(
        r"\bhow (?:do|can|would) (?:we|you|u) (?:approve|reject|accept|cancel|pause|resume|retry|skip|rate|add|create|file|open|use|start|ask|talk|know|confirm|undo|learn|work)\b|\bhow do(?:es)? .*\bwork\b|\bexplain how .*\bworks?\b"
    );
    about_tamma.is_match(text) || (!names_task && how.is_match(text))
}

/// Recognises small talk: greetings, thanks, and commands that are only mentioned.
fn parse_talk(
    message: &MessageText<'_>,
    question: bool,
    names_task: bool,
) -> Option<Interpretation> {
    let text = message.masked.trim();
    let talk = |explanation: &str| Some(interpretation(Intent::Talk, 75, explanation));
    let possible_request = || {
        let unclear = Intent::Unclear(Clarification::ConfirmIntent);
        Some(interpretation(unclear, 60, "possibly a request"))
    };
    if phrase!(r"^[\s\x1a\W]*$").is_match(text) && message.has_quotes() {
        return talk("only quoted text");
    }
    if phrase!(r"\b(?:no way|just kidding)\b").is_match(text) {
        return talk("retracted");
    }
    // "Maybe cancel it?" is neither a request nor a question about the work.
    let hesitant = phrase!(
        r"^\W*(?:(?:hmm+|hm|uh|um|well|so|ok|okay)\W+)*(?:(?:maybe|perhaps|possibly|shouldn['’]?t we|(?:i (?:guess|think|suppose|reckon)|i['’]?d say) (?:we|you|it|that) (?:should|could|can|might|may|better))\b)"
    );
    if hesitant.is_match(text) && has_command_word(text) {
        return possible_request();
    }
    if question {
        return None;
    }
    let for_all = phrase!(
        r"^(?:execute |run |please |now )?(?:approve|accept|merge|reject|cancel|abandon|pause|resume|retry|skip)\b(?: on)? (?:all|every|everything)\b"
    );
    if message.clauses.iter().any(|clause| for_all.is_match(message.clause_text(clause))) {
        let unclear = Intent::Unclear(Clarification::OneAtATime);
        return Some(interpretation(unclear, 60, "command for several tasks"));
    }
    if phrase!(r"\bi (?:see|saw|read|found)\b[^:\n]*:").is_match(text) && has_command_word(text) {
        return talk("reports what it says somewhere");
    }
    let reported = phrase!(
        r"\b(?:says?|said|writes?|wrote|told|thinks?|thought|wants?|asked|asks|suggests?) (?:that|to|me|us|we|i)\b"
    );
    if reported.is_match(text)
        && has_command_word(text)
        && !phrase!(r"^\W*i (?:say|said|want|don['’]?t want|do not want)\b").is_match(text)
    {
        return talk("reports what someone else wants");
    }
    if phrase!(r"\b(?:maybe|perhaps|probably)\b.*\b(?:should|could|might|ought)\b|\b(?:someone|somebody|we) (?:should|ought to)\b").is_match(text)
        && !phrase!(r"\b(?:should|ought) (?:not|never)\b").is_match(text)
        && has_command_word(text)
    {
        return possible_request();
    }
    let not = phrase!(
        r"\b(?:not|don['’]?t|doesn['’]?t|never|haven['’]?t|hasn['’]?t|didn['’]?t|can['’]?t|cannot|won['’]?t|shouldn['’]?t|wouldn['’]?t|nobody|no one|no need|without|no circumstances|refrain|avoid)\b"
    );
    let action_word = phrase!(
        r"\b(?:approv|cancel|reject|paus|resum|retr[yi]|skip|abandon|overrid|roll(?:ed|ing)? |roll ?back|accept|merg|delete|deleting|confirm|do anything)"
    );
    if not.is_match(text) && action_word.is_match(text) {
        // "Don't approve it yet, show me the plan" asks for the plan.
        let lookup = phrase!(
            r"^\s*(?:(?:please|pls|first|just|but|can you|could you) )*(?:show|list|send me|give me|let me see)\b"
        );
        let asks = message.clauses.iter().skip(1).any(|clause| {
            let clause = message.clause_text(clause);
            lookup.is_match(clause) && !action_word.is_match(clause)
        });
        return if asks { None } else { talk("negated command") };
    }
    if phrase!(r"^\W*(?:(?:please|pls|but|ok|no)\W+)*(?:do not|don['’]?t|never)\b").is_match(text)
    {
        return talk("negated request");
    }
    if phrase!(r"^\W*(?:if|when|once|as soon as|unless|provided)\b").is_match(text)
        && action_word.is_match(text)
        && !phrase!(r"^\W*\w+ (?:i|we|you|u)\b|\b(?:what|how|who|why)\b|\bi['’]?(?:d|ll|m)\b|\bi (?:would|will|could|might|can)\b|\bwere\b")
            .is_match(text)
    {
        let unclear = Intent::Unclear(Clarification::Condition);
        return Some(interpretation(unclear, 60, "conditional command"));
    }
    if action_word.is_match(text)
        && !phrase!(r"^\W*(?:show|list|tell|give|explain|find|let me)\b").is_match(text)
    {
        let mentioned = phrase!(
            r"\b(?:i['’]?d|if|imagine|suppose|could|would|should|thinking|wants?|yesterday|approved|cancelled|canceled|rejected|paused|retried|skipped|disable|treat|will|might|about to|i['’]?ll|tomorrow|have to|has to|need to|going to|later|wrote|says?|said|printing|been)\b"
        );
        if mentioned.is_match(text)
            && !phrase!(r"^\W*(?:which|list|show)\b|\b(?:tasks|ones)\b").is_match(text)
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
    is_small_talk(text, names_task).then(|| interpretation(Intent::Talk, 75, "small talk"))
}

/// Recognises greetings, thanks, feelings and remarks. A statement about a task can be a request.
fn is_small_talk(text: &str, names_task: bool) -> bool {
    let greeting = phrase!(
        r"^\W*(?:hi|hello|hey|yo|thanks|thank you|thx|ty|tysm|cheers|bye|morning|good (?:morning|evening|night|afternoon|job|work|stuff|one|point|bot|catch|luck)|nice|great|cool|awesome|amazing|perfect|excellent|brilliant|lovely|neat|sweet|appreciate|back from|that was|that['’]?s (?:great|good|nice|awesome|cool|amazing|bad|sad|funny|wonderful|all|crazy|hilarious)|wow|lol|lmao|haha\w*|welcome|sorry|see you|brb|gtg|afk|ok|okay|alright|never ?mind|nvm|no|nope|oh no|sure|fair enough|got it|makes sense|congrat\w*|well done|have an? (?:nice|good|great|lovely)|ugh+|argh+|meh|hmm+|yay|oops|damn|wtf|omg|phew|interesting|funny|whatever|not (?:today|now|yet|bad)\W*$|one day|someday|this (?:bot|thing|chat|tool) is|just (?:checking in|saying|testing|curious)|happy \w+day)\b|\bthank (?:you|u)\b|^\W*(?:i )?will do\W*$|^(?:looks|sounds) "
    );
    let lookup = phrase!(
        r"\b(?:show|list|status|update on|news|give me|send me|tell me|inbox|overview|logs?|diff|what about|how about)\b"
    );
    if greeting.is_match(text) {
        return !lookup.is_match(text);
    }
    let feeling = phrase!(
        r"\b(?:you['’]?re|you are|ur|u r) (?:doing|so |an? |the |really |very |great|awesome|welcome|useless|slow|stupid|dumb|annoying|terrible|wrong|right|funny|fast|hired|fired)|^\W*(?:you|u) (?:rock|rule|suck|nailed|did|made|saved|guys)\b|\bi (?:hate|love|like|hope|miss|feel|wish|enjoy)\b"
    );
    // "I'll look at it after lunch" is a remark; "I'd like to see it" is not.
    let remark = phrase!(
        r"^\W*(?:i['’]?(?:m|ll|ve)|i (?:am|will|would|was|have|had|did|already|just|might|may|could|can['’]?t|cannot|don['’]?t|know|guess|told|talked|spoke|approved|cancell?ed|rejected|paused|looked|saw|see|got)|we (?:are|were|have|had|will|did|just|already|might|can['’]?t)|we['’]?(?:re|ll|ve)|he|she|they|my \w+ (?:is|was|has|had|just|said|thinks|wants)|this is|that is|that['’]s|it['’]s|will (?:do|review|check|look|be|have|get|answer|reply|let|ask|think|test|try)) "
    );
    let statement = phrase!(
        r"^\W*(?:the|our|a|an|some|all|btw|fyi)\b[^?]*\b(?:is|are|was|were|has|have|had|went|came|broke|left|says|said|seems|looks|works|got)\b"
    );
    let wish = phrase!(
        r"\b(?:need|want|like to|wondering|curious|interested|looking for|asking|wants? to know)\b"
    );
    feeling.is_match(text)
        || ((remark.is_match(text) || (!names_task && statement.is_match(text)))
            && !wish.is_match(text)
            && !lookup.is_match(text))
}

fn is_about_lessons(text: &str) -> bool {
    phrase!(r"\b(?:lessons?|learnings?|knowledge|conventions?|prohibitions?|guidelines?)\b|\b(?:we|you|u|agents?|team|it|anything|something|everything) (?:have |has )?(?:just )?learn(?:ed|t)?\b|\blearn(?:ed|t) (?:so far|anything|something|today|yesterday|recently|this|last)\b|\b(?:list|show|what|which|all|our)(?: me)?(?: (?:all|are))?(?: the| our)? rules\b|\bwhat do (?:we|you) know about\b|\bteam know|\brules? (?:about|for|on)\b").is_match(text)
}

fn is_about_cost(text: &str) -> bool {
    phrase!(r"\b(?:costs?|spend|spent|spending|expensive|budget|dollars?|usd|tokens?|money|burn(?:ed|t|ing)?|price|bill|bills|pay|paid|paying|costing|eaten|expenses?|expenditure)\b|\bhow much (?:(?:was|is) (?:it|that|this)|so far|already|until now|in total)\b|\bhow much (?:have|did|do) (?:we|you|it|they) (?:use|used)\b|\$").is_match(text)
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
        r"\binbox\b|\b(?:am|are) (?:i|we) (?:blocking|holding)\b|\bam i the (?:bottleneck|blocker)\b|\b(?:need|needs|needed|awaits?|awaiting|requires?|expects?) (?:me|us|my|a human|a person|a decision|some(?:one|body)|human)\b|\bi (?:can|could) (?:unblock|help with|act on)\b|\bmy (?:ok|okay|go|side|blessing|call|word|opinion|feedback|action|yes)\b|\bdecisions? (?:are |is )?(?:still )?(?:open|pending|outstanding|waiting|due|needed|left)\b|\b(?:open|pending|outstanding) decisions?\b|\bwant me to\b|\b(?:where|when|how) am i needed\b|\bdo i (?:need|have) to (?:approve|decide|review|answer|do|sign|look|check)\b|\bapprovals? (?:are (?:you|u) )?(?:still )?waiting\b|\bmy next\b|\bblocked (?:by|on) me\b|\bnext for me\b|\b(?:expect|need|require) (?:from me|me to)\b|\b(?:for|on|from) me\b|\bmy (?:approval|attention|plate|decision|review|turn|input|answer|reply|queue|todo|sign-?off)\b|\bi owe\b|\btodos?\b|\bapprovals? (?:outstanding|open|pending|left|missing|due)\b|\b(?:outstanding|open|pending) approvals?\b|\bwhat should i (?:look at|do|start with|work on|tackle)\b|\b(?:waiting|waits?|pending|need|needs|ready) (?:for |my |an? )*(?:approval|review|decision)|\bi (?:should|need to|have to|must|can|could) (?:decide|approve|review|answer|look|do)|\b(?:can|should|must) i (?:approve|decide|review|answer|do)\b.*\b(?:now|next|today)|\bwhat (?:can|should|do|must) i (?:need to |have to )?(?:approve|decide|review|answer)|\bquestions? from\b|\bopen questions?\b|\bquestions? (?:is|are) (?:still )?open\b|\b(?:anything|something|nothing|what(?: is|['’]s)?|more) (?:left |there )?(?:for me )?to (?:approve|decide|review|answer|sign|confirm)\b"
    )
    .is_match(text)
}

/// Returns the aspect of a task that a message asks for. "A summary of what got done" is a list.
fn asked_aspect(text: &str, names_task: bool, context: &ChatContext) -> Option<Aspect> {
    let is_list = !names_task && is_list(text, names_task, context);
    parse_aspect(text).filter(|aspect| !(is_list && *aspect == Aspect::Report))
}

fn parse_aspect(text: &str) -> Option<Aspect> {
    let looks_like = phrase!(
        r"\bwhat (?:does|do|did|will|['’]?s|is) .*\b(?P<what>plan|diff|patch|change)s?\b.*\b(?:looks? like|say|says|contain|consist of|propose)\b"
    );
    if let Some(at) = looks_like.group(text, "what") {
        return Some(if text.get(at) == Some("plan") { Aspect::Plan } else { Aspect::Diff });
    }
    let changed = phrase!(
        r"\b(?:show|see)\b.* what (?:you|u|it|the agent|they) (?:have |has )?(?:changed|did|edited|modified)\b|^\W*(?:(?:so|ok|and) )*what (?:exactly )?(?:did|have) (?:you|u) (?:actually )?(?:change|modify|edit|touch)(?:d|ed)?\b|\bwhat (?:exactly )?(?:was|were|has been|got) (?:changed|edited|modified)\b"
    );
    if changed.is_match(text) {
        return Some(Aspect::Diff);
    }
    if phrase!(
        r"\bwhat did (?:it|the agent) (?:print|log|output)\b|\bagent (?:is )?(?:printing|logging)\b|\bwhat(?:['’]?s| is) .*\b(?:printing|logging)\b"
    )
    .is_match(text)
    {
        return Some(Aspect::Log);
    }
    if phrase!(r"\b(?:why|who|which|how many|how come|should|explain|does|do)\b").is_match(text) {
        return None;
    }
    let is_remark =
        phrase!(r"\b(?:plan|diff|patch|report|change)s? (?:is|was|looks|sounds|seems|makes|has)\b");
    if is_remark.is_match(text) && !text.ends_with('?') {
        return None;
    }
    let named_aspect = phrase!(
        r"(?:^\W*(?:(?:so|hi|hey|ok|and|the|a|final|last|latest|full|current|complete|short|quick|whole|entire) )*|\b(?:show|see|print|read|give|open|get|view|display|pull up|bring up|look at|check|want|need|let|paste|send|post|share|copy|what['’]?s|what is|in)\b.*?)\b(?P<what>plan|diff|patch|log|logs|transcript|output|history|events|timeline|report|summary|code changes|changes|code|what it changed|what (?:has )?changed|changes it made)\b"
    );
    if phrase!(r"\bbeen (?:printing|saying|logging|writing)\b").is_match(text) {
        return Some(Aspect::Log);
    }
    let happened = phrase!(
        r"\bwhat(?:['’]?s| has| have| all)? happened (?:to|with|on|in|so far)\b|\beverything that (?:has )?happened\b|\b(?:walk|take) me through (?:what|the)\b|\bwhat (?:has )?happened .*\bso far\b"
    );
    if happened.is_match(text) {
        return Some(Aspect::History);
    }
    let leading_aspect =
        phrase!(r"\b(?P<what>output|log|logs|diff|plan|history|report)\b (?:of|for|on|from)\b");
    // "Search logs please" has no verb.
    let trailing_aspect = phrase!(
        r"^\W*(?:[a-z0-9#'’-]+ ){0,6}(?P<what>plan|diff|patch|logs?|transcript|history|timeline|report|code changes)(?:,? (?:please|pls|plz|thx|thanks|again|now))*\W*$"
    );
    let has_verb = phrase!(r"\b(?:how|what|is|are|was|were|i|you|not|no|has|have|did)\b");
    let at = named_aspect
        .group(text, "what")
        .or_else(|| leading_aspect.group(text, "what"))
        .or_else(|| trailing_aspect.group(text, "what").filter(|_| !has_verb.is_match(text)))?;
    Some(match text.get(at)? {
        "plan" => Aspect::Plan,
        "log" | "logs" | "transcript" | "output" => Aspect::Log,
        "history" | "events" | "timeline" => Aspect::History,
        "report" | "summary" => Aspect::Report,
        _ => Aspect::Diff,
    })
}

fn is_list(text: &str, names_task: bool, context: &ChatContext) -> bool {
    if phrase!(r"\b(?:tasks?|tickets?|issues|bugs)(?: (?:do|did) (?:we|you) have| are there| we have| open)? (?:about|on|with|that mention|mention|mentioning|for|related to|regarding|concerning|around)\b").is_match(text)
        && phrase!(r"\b(?:tasks|tickets|issues|bugs)\b|\b(?:is|are) there\b|\b(?:do|have) (?:we|you)\b|\bany\b").is_match(text)
    {
        return true;
    }
    if phrase!(r"^\W*(?:status|overview|summary)\W*$").is_match(text) {
        return context.last.is_none();
    }
    !names_task
        && phrase!(
            r"\b(?:tasks|jobs|ones|everything|rundown|recap|agents (?:busy|active|idle)|overview|agents working|going on)\b|^\W*(?:list|tasks)\W*$|\b(?:any|some)(?:thing|one)?\b.*\b(?:stuck|running|fail\w*|broken?|break|blocked|paused|done|wrong|new|red|crash\w*|cancell?ed|queued|finished|completed|shipped|merged|delivered|planned|in review|in progress)\b|\b(?:tickets|failures|backlog)\b|\bwhat else\b|\bwhat (?:have )?you(?:['’]ve| have)? got\b|\bcooking\b|\bagents are\b|\bcurrent(?:ly)? (?:work|active|open)\b|\bworked on\b|^\W*(?:so |ok )*what do (?:we|you|u) have\b|\bsummary of (?:what|everything|the (?:day|week|month)|today|yesterday|this|last)\b|\bwork in progress\b|\b(?:the|a) list\b|\bon (?:the|our) (?:board|list|agenda)\b|\bwhat (?:do|must|should) (?:we|you|u) (?:still )?(?:have|need|got) to do\b|\b(?:who|what)(?:['’]?s| is| are| r)?\b.*\b(?:working on|up to)\b|\bwhat (?:are|r|is) (?:you|u|they|we|the team|the agents?|everyone|everybody)\b.*\b(?:doing|planning|building)\b|\bwhat (?:did|have|has) (?:we|you|u|they|the team|everyone|it)\b.*\b(?:ship|deliver|finish|complete|merge|close|done|get through|achieve)(?:d|ed)?\b|\bwhat went wrong (?:since|today|yesterday|this|last)\b|^\W*(?:failed|completed|finished|done|cancell?ed|paused|queued|running|stuck|blocked|open)(?: (?:ones|stuff|things|work|today|yesterday|this \w+|last \w+|please|pls|now|rn))*\W*$|^\W*(?:so |hi |hey |ok )*what(?:['’]?s| is| are| has| have| did| got| was| were)?\b.*\b(?:running|fail(?:ed|ing|s)?|paused|stuck|done|finish(?:ed)?|cancell?ed|completed?|progress|queued?|review|planned|planning|blocked|broke|merged|shipped|delivered|open|left|backlog|upcoming)\b"
        )
        .is_match(text)
}

fn parse_selection(text: &str) -> TaskSelection {
    let kinds = [
        (
            TaskSelection::All,
            phrase!(
                r"\b(?:finished|done|completed|closed|open) or not\b|\b(?:incl\w*|also|even|plus)\b.*\b(?:done|finished|completed|closed|cancell?ed) (?:ones|tasks|stuff)|\bevery (?:single )?task\b"
            ),
        ),
        (TaskSelection::Failed, phrase!(r"\b(?:fail\w*|broken?|break|went wrong|crash\w*|red)\b")),
        (
            TaskSelection::Open,
            phrase!(
                r"\b(?:open|unfinished|outstanding) (?:tasks?|ones?|work|tickets?|jobs?|stuff|things|issues|bugs)\b"
            ),
        ),
        (TaskSelection::Cancelled, phrase!(r"\bcancell?ed\b")),
        (TaskSelection::Paused, phrase!(r"\b(?:paused|on hold)\b")),
        (TaskSelection::Stuck, phrase!(r"\b(?:stuck|blocked|escalated)\b")),
        (
            TaskSelection::Running,
            phrase!(
                r"\b(?:running|in progress|worked on|working on|active|busy|doing|up to|building|cooking|current)\b"
            ),
        ),
        (
            TaskSelection::Completed,
            phrase!(
                r"\b(?:finish(?:ed)?|done|completed?|ship(?:ped)?|merged?|deliver(?:ed)?|closed?|achieved?|get through)\b"
            ),
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
        (Period::Today, phrase!(r"\b(?:today(?:['’]?s)?|this morning)\b")),
        (Period::Yesterday, phrase!(r"\byesterday(?:['’]?s)?\b")),
        (Period::ThisWeek, phrase!(r"\bthis week(?:['’]?s)?\b")),
        (Period::LastWeek, phrase!(r"\blast week(?:['’]?s)?\b")),
        (Period::ThisMonth, phrase!(r"\bthis month(?:['’]?s)?\b")),
        (Period::LastMonth, phrase!(r"\blast month(?:['’]?s)?\b")),
    ];
    periods.iter().find(|(_, phrase)| phrase.is_match(text)).map(|(period, _)| *period)
}

fn parse_search(message: &MessageText<'_>) -> Option<String> {
    let about = phrase!(
        r"\b(?:tasks?|tickets?|issues|bugs|lessons?|learnings?|learn(?:ed|t)|rules?|know)(?: (?:do|did) (?:we|you) have| are there| we have| open)? (?:about|on|with|that mention|mention|mentioning|for|related to|regarding|concerning|around) (?P<what>[^?.!,\n]+)"
    );
    let at: Range<usize> = about.group(&message.masked, "what")?;
    Some(message.original_text(at)).filter(|text| !text.is_empty())
}

fn is_work_question(text: &str) -> bool {
    phrase!(
        r"\b(?:why|who|whose|how come|explain|should (?:i|we)|shall (?:i|we)|what if|what happens|what would|what will|(?:safe|wise|ok|okay|possible|worth|smart|good idea) to|a good idea|allowed to|may (?:i|we)|can (?:i|we)|could (?:i|we)|would (?:it|a|an|that|this)|suppose|options|risk|risky|attempts|error|council|model)\b|\bif (?:i|we|you)\b|^\W*(?:could|would|will|does|do (?:i|we|you|they|the \w+ \w+|any|it|these|those|all|tests?|gates?)|did the (?:agent|council|model|plan|change|review)|should)\b|^\W*(?:which|what) (?:files?|tests?|rules?|gates?|lines?|did|does|do|was|went)\b|\bafter (?:i|we|you)\b|\b(?:is|are) that (?:ok|fine|right|normal)\b|\bor \w+ .*\?|\bwhat does that mean\b"
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
        r"\b(?:status|satus|state|update|progress|news|how['’]?s|how is|how are|hows|how far|where|wheres|where['’]s|when will|stands?|doing|going|next for|happening|waiting|up w(?:ith)?|tell me about|what about|how about|still|eta|movement|coming along|any luck|up to|what['’]?s w(?:ith)?|became of|come of|remind me what)\b|^\W*(?:(?:so|hi|hey|ok|please|pls|can (?:you|u)|could (?:you|u))\W+)*(?:show|open|see|view|display|describe|check)\b"
    )
    .is_match(text)
}

/// Returns true if a question is about the state of something: whether it is done, or when it will be.
/// "Is it also on mobile?" is not, nor is a question about a reason, a person or a consequence.
fn asks_state(text: &str) -> bool {
    let start = phrase!(
        r"(?:^|[,.?!:;]\s|\s[-–—]\s)\W*(?:(?:so|hi|hey|hello|ok|and|but|btw|please|pls|quick question)\W+)*(?:is|are|was|were|has|have|did|does)\b|\b(?:know|wonder|wondering|see|check|tell me) (?:whether|if)\b|^\W*(?:[a-z0-9#'’-]+[ ,:.-]+){0,6}[a-z]+\W*\?+\s*$"
    );
    let state = phrase!(
        r"\b(?:done|finish(?:ed|es)?|fixed|ready|merged|running|stuck|blocked|paused|approved|cancel|cancell?ed|rejected|accepted|fail(?:ed|ing|s)?|live|start(?:ed)?|working|waiting|completed?|over|still|yet|already|ever|broken|deployed|shipped|closed|in (?:progress|review|planning)|through|on hold|progressing|moving|going|queued|planned|delivered|resolved|solved|sorted|looking (?:at|into)|anywhere|retried|resumed|underway|headway|nearly|almost|there yet|looked (?:at|into)|now)\b"
    );
    let other = phrase!(
        r"\b(?:why|who|whose|which|how|what|should|shall|would|could|may|risk\w*|safe|explain|if (?:i|we|you)|(?:ok|okay|good|fine|right|wise|smart|clever|worth|sensible|possible|normal|allowed) to|since|can (?:i|we)|tests?|files?|gates?|council|agent|plan (?:cover|include|handle|need)s?)\b"
    );
    let strong = phrase!(
        r"\bwhen (?:can|will|could|do|does|is|are|it['’]?s|it is)\b|\bwhat['’]?s (?:the latest|new with)\b|\bany idea when\b|\bwhat (?:phase|stage|state|step|status)\b|\bhow much (?:longer|more time)\b|\bhow (?:far|close)\b|\bwhat (?:became|has become|came) of\b"
    );
    strong.is_match(text) || (start.is_match(text) && state.is_match(text) && !other.is_match(text))
}

/// Returns the one of several tasks that an aspect fits best: a diff is read in review, a plan before
/// its approval, a report at the end.
fn preferred_for(aspect: Aspect, reference: TaskReference, context: &ChatContext) -> TaskReference {
    let TaskReference::Many(tasks) = &reference else { return reference };
    let fits = |state: State| match aspect {
        Aspect::Diff => state == State::QualityReview,
        Aspect::Plan => state == State::AwaitingApproval,
        Aspect::Report => state.is_terminal(),
        Aspect::Log | Aspect::History => false,
    };
    let mut fitting =
        tasks.iter().filter(|id| context.task(**id).is_some_and(|task| fits(task.state)));
    match (fitting.next(), fitting.next()) {
        (Some(task), None) => TaskReference::One(*task),
        _ => reference,
    }
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
    // "And the export?" has nothing but the name of a task.
    if let TaskReference::One(task) = *reference
        && question
        && word_count > 1
        && !phrase!(r"\b(?:how|what|whats|why|who|which|when)\b").is_match(&message.masked)
        && task_reference::is_only_name(&message.masked, task, context)
    {
        return interpretation(Intent::Status { task }, 60, "name of a task");
    }
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
