//! What a message wants to know, and whether it says yes or no.

use std::ops::Range;

use tamma_core::ids::TaskId;

use crate::order::has_verb;
use crate::refer::{self, Found};
use crate::understand::understood;
use crate::words::{Own, form};
use crate::{Aspect, Context, Intent, Period, Topic, Unclear, Understood, Which};

/// Whether a message is a yes and nothing else.
pub(crate) fn is_yes(own: &Own<'_>) -> bool {
    let only = form!(
        r"^[\s,.!]*(?:(?:yes|y|yep|yeah|yup|ok|okay|k|sure|confirm|confirmed|go ahead|go for it|do it|do that|please do|absolutely|of course|affirmative|go|please|pls|thanks|thank you|now)\b[\s,.!]*)+$"
    );
    let yes = form!(
        r"\b(?:yes|y|yep|yeah|yup|ok|okay|k|sure|confirm|confirmed|go|do it|do that|please do|absolutely|of course|affirmative)\b"
    );
    only.is(&own.text) && yes.is(&own.text)
}

/// Yes and no to what was just proposed. They come first: what else a "cancel" may mean, right after
/// a proposal it takes that back.
pub(crate) fn yes_or_no(own: &Own<'_>, context: &Context) -> Option<Understood> {
    let text = &*own.text;
    let unclear = |unclear, why: &str| Some(understood(Intent::Unclear(unclear), 70, why));
    let bold = form!(r"^\W*(?:yes|yep|yeah|y|do it|go ahead|confirm|confirmed)\b");
    if is_yes(own) {
        return match context.proposed {
            true => Some(understood(Intent::Confirm, 95, "a plain yes")),
            false if bold.is(text) => unclear(Unclear::YesToWhat, "nothing waits for a yes"),
            false => None,
        };
    }
    let yes = form!(r"^\W*(?:yes|yep|yeah|sure|ok|okay)\b");
    if yes.is(text) && form!(r"\b(?:to (?:all|everything|any)|from now on|always)\b").is(text) {
        return unclear(Unclear::OneAtATime, "a yes is for one command");
    }
    if !context.proposed {
        return None;
    }
    if yes.is(text) && form!(r"\b(?:if|unless|once|when|as soon as|only|after)\b").is(text) {
        return unclear(Unclear::Condition, "the yes hangs on a condition");
    }
    let no = form!(
        r"^[\s,.!]*(?:(?:hmm+|wait|no|nope|nah|n|never ?mind|please|pls|thanks|don['’]?t|do not|do that|do it|not|yet|now|sure|so fast|stop|abort|cancel|that|it|forget|leave|hold on|hang on|rather|i['’]?m|am|i|actually|sorry|better|a|second|sec|minute|moment|bit|let['’]?s)\b[\s,.!]*)+$"
    );
    let negative = form!(
        r"\b(?:no|nope|nah|n|never ?mind|don['’]?t|not|stop|abort|cancel|forget|leave|wait|hold|hang)\b"
    );
    (no.is(text) && negative.is(text)).then(|| understood(Intent::Decline, 90, "a plain no"))
}

/// What a message without an order wants.
pub(crate) fn read(own: &Own<'_>, context: &Context) -> Understood {
    let text = own.text.trim();
    let question = is_question(own);
    let found = refer::find(text, context, |_| true);
    let points = matches!(found, Found::One(_) | Found::Many(_));
    let unclear = |unclear, why: &str| understood(Intent::Unclear(unclear), 60, why);

    if is_help(text) {
        return understood(Intent::Help, 85, "it asks how Tamma is used");
    }
    if let Some(talk) = talk(own, question) {
        return talk;
    }
    if is_about_lessons(text) {
        let intent = if form!(r"\b(?:should|shall|why|who|would)\b").is(text) {
            Intent::Ask { task: None, about: Topic::Knowledge }
        } else {
            Intent::Lessons { period: period(text), search: search(own) }
        };
        return understood(intent, 80, "it asks what the team knows");
    }
    let topics = own.clauses.iter().filter(|clause| topic(own.clause(clause)).is_some());
    let mut topics: Vec<_> = topics.map(|clause| topic(own.clause(clause))).collect();
    topics.dedup();
    if topics.len() > 1 {
        return unclear(Unclear::OneAtATime, "it asks for two things");
    }
    if is_about_cost(text) {
        let (period, why) = (period(text), "it asks about money");
        // Money of a time is everybody's, unless a task is pointed at.
        if period.is_some() && matches!(found, Found::Nothing) {
            return understood(Intent::Cost { task: None, period }, 85, why);
        }
        return match pointed(&found, context, false) {
            Ok(task) => understood(Intent::Cost { task, period }, 85, why),
            Err(back) => unclear(back, why),
        };
    }
    if !points && !form!(r"\bwhy\b").is(text) && is_inbox(text) {
        return understood(Intent::Inbox, 85, "it asks what waits for them");
    }
    if let Some(aspect) = aspect(text) {
        return match pointed(&found, context, true) {
            Ok(Some(task)) => understood(Intent::Show { task, aspect }, 85, "it asks to see it"),
            Ok(None) => unclear(Unclear::What, "of which task?"),
            Err(back) => unclear(back, "it asks to see a piece of a task"),
        };
    }
    if is_list(text, points, context) {
        let intent = Intent::List { which: which(text), period: period(text), search: search(own) };
        return understood(intent, 80, "it asks for several tasks");
    }
    let tagged =
        form!(r"\b(?:right|correct|no|isn['’]?t it|didn['’]?t it|hasn['’]?t it)\s*\?$").is(text);
    if !tagged && is_ask(text) {
        return match pointed(&found, context, false) {
            Ok(task) => understood(
                Intent::Ask { task, about: topic_of(text) },
                75,
                "it asks about the work",
            ),
            Err(back @ Unclear::Which { .. }) => unclear(back, "it asks about the work"),
            Err(_) => understood(
                Intent::Ask { task: context.last, about: topic_of(text) },
                60,
                "it asks about the work",
            ),
        };
    }
    if tagged || is_status(text) {
        return match pointed(&found, context, true) {
            Ok(Some(task)) => understood(Intent::Status { task }, 85, "it asks how a task stands"),
            Ok(None) => understood(
                Intent::List { which: Which::Open, period: period(text), search: None },
                60,
                "it asks how things stand",
            ),
            Err(back) => unclear(back, "it asks how a task stands"),
        };
    }
    if context.proposed && form!(r"\b(?:yes|confirm\w*|approve\w*)\b").is(text) {
        return unclear(Unclear::YesToWhat, "it speaks of a yes and is none");
    }
    last_resort(own, question, &found, context)
}

fn is_question(own: &Own<'_>) -> bool {
    let begins = form!(
        r"^\W*(?:(?:so|and|hey|hi|hello|yo|ok|okay|well|but|btw|also|um|then|please|pls|good morning|morning|quick (?:question|check|one))\W+)*(?:what|whats|what['’]s|where['’]?s|how['’]s|who|who['’]?s|why|when|where|which|how|hows|hw|is|are|was|were|does|do|did|has|have|can|could|should|shall|would|will|am|may|any)\b"
    );
    own.clauses.iter().any(|clause| clause.asked || begins.is(own.clause(clause)))
}

fn is_help(text: &str) -> bool {
    form!(r"^/?help\b|\bwho are you\b|\bwhat (?:can|do) you (?:do|understand)\b|\bwhat commands\b|\bwhat (?:can|could|should|may) i (?:ask|say|tell|type|write)\b|\bhow (?:do|can|would) (?:i|we|you)\b|\bhow do(?:es)? .* work\b|\bdifference between\b|^what do(?:es)? (?:\x1a+|an? )?\w* ?(?:mean|do)\b|\bcommands do you\b|^\W*what(?:['’]?s| is| are) (?:an? |the )?(?:gates?|council|tiers?|engines?|iterations?|pipelines?|salvage|override|blockers?|ceremony|soft timeouts?)\W*$").is(text)
}

/// What wants nothing: greetings, thanks, and commands that are only spoken of.
fn talk(own: &Own<'_>, question: bool) -> Option<Understood> {
    let text = own.text.trim();
    let talk = |why: &str| Some(understood(Intent::Talk, 75, why));
    if form!(r"^[\s\x1a\W]*$").is(text) && own.quotes() {
        return talk("all of it is somebody else's words");
    }
    if form!(r"\b(?:no way|just kidding)\b").is(text) {
        return talk("it takes back what it says");
    }
    if question {
        return None;
    }
    let reported = form!(
        r"\b(?:says?|said|writes?|wrote|told|thinks?|thought|wants?|asked|asks|suggests?) (?:that|to|me|us|we|i)\b"
    );
    if reported.is(text) && has_verb(text) && !form!(r"^\W*i (?:say|said|want)\b").is(text) {
        return talk("it tells what somebody else wants");
    }
    if form!(r"\b(?:maybe|perhaps|probably)\b.*\b(?:should|could|might|ought)\b|\b(?:someone|somebody|we) (?:should|ought to)\b").is(text)
        && has_verb(text)
    {
        return Some(understood(Intent::Unclear(Unclear::Sure), 60, "it may be a wish"));
    }
    let not = form!(
        r"\b(?:not|don['’]?t|doesn['’]?t|never|haven['’]?t|hasn['’]?t|didn['’]?t|can['’]?t|cannot|won['’]?t|shouldn['’]?t|wouldn['’]?t|nobody|no one|no need|without|no circumstances|refrain|avoid)\b"
    );
    let deed = form!(
        r"\b(?:approv|cancel|reject|paus|resum|retr[yi]|skip|abandon|overrid|roll(?:ed|ing)? |roll ?back|accept|merg|delete|deleting|confirm|do anything)"
    );
    if not.is(text) && deed.is(text) {
        return talk("a command is spoken of and denied");
    }
    if deed.is(text) && !form!(r"^\W*(?:show|list|tell|give|explain|find|let me)\b").is(text) {
        let told = form!(
            r"\b(?:i['’]?d|if|imagine|suppose|could|would|should|thinking|wants?|yesterday|approved|cancelled|canceled|rejected|paused|retried|skipped|disable|treat|will|have to|has to|need to|going to|later|wrote|says?|said|printing|been)\b"
        );
        if told.is(text) && !form!(r"^\W*(?:which|list|show)\b|\btasks\b").is(text) {
            return talk("a command is spoken of, and nobody orders it");
        }
    }
    if own.quotes() && !form!(r"^\W*(?:explain|show|tell)\b").is(text) {
        return talk("it tells what somebody else said");
    }
    if text.ends_with('!') && !has_verb(text) {
        return talk("an exclamation");
    }
    form!(
        r"^\W*(?:hi|hello|hey|yo|thanks|thank you|thx|cheers|bye|good (?:morning|evening|night|afternoon|job|work)|nice|great|cool|awesome|appreciate|back from|that was|wow|lol|haha\w*|welcome|sorry|see you|ok|okay|alright|never ?mind|no|nope|sure|congrat\w*|well done)\b|\b(?:you['’]?re|you are) (?:doing|great|awesome|the best|welcome)|^\W*i['’]?(?:m| am) (?:off|back|away|here|out|happy|tired|done)\b|\bthank (?:you|u)\b|^(?:looks|sounds) "
    )
    .is(text)
    .then(|| understood(Intent::Talk, 75, "it only talks"))
}

fn is_about_lessons(text: &str) -> bool {
    form!(r"\b(?:lessons?|learnings?|knowledge|conventions?|prohibitions?|guidelines?)\b|\bwe learn(?:ed|t)?\b|\bteam know|\brules? (?:about|for|on)\b").is(text)
}

fn is_about_cost(text: &str) -> bool {
    form!(r"\b(?:costs?|spend|spent|spending|expensive|budget|dollars?|usd|tokens?|money|burn(?:ed|t)?|price|bill)\b|\$").is(text)
        && !form!(r"\b(?:why|how come)\b").is(text)
}

/// What a clause asks for, as far as two of them can be told apart.
fn topic(text: &str) -> Option<u8> {
    if !form!(r"^\W*(?:what|how|which|who|show|list)").is(text) {
        None
    } else if is_about_cost(text) {
        Some(1)
    } else if form!(r"\b(?:running|failed|stuck|paused|waiting|waits)\b").is(text) {
        Some(2)
    } else {
        None
    }
}

fn is_inbox(text: &str) -> bool {
    form!(
        r"\binbox\b|\b(?:for|on|from) me\b|\bmy (?:approval|attention|plate|decision|review|turn|input|answer|reply|queue|todo|sign-?off)\b|\bi owe\b|\btodos?\b|\bapprovals? (?:outstanding|open|pending|left|missing|due)\b|\b(?:outstanding|open|pending) approvals?\b|\bwhat should i (?:look at|do|start with|work on|tackle)\b|\b(?:waiting|waits?|pending|need|needs|ready) (?:for |my |an? )*(?:approval|review|decision)|\bi (?:should|need to|have to|must|can|could) (?:decide|approve|review|answer|look|do)|\b(?:can|should|must) i (?:approve|decide|review|answer|do)\b.*\b(?:now|next|today)|\bwhat (?:can|should|do|must) i (?:need to |have to )?(?:approve|decide|review|answer)|\bquestions? from\b|\bopen questions?\b|\bquestions? (?:is|are) (?:still )?open\b|\b(?:anything|something|nothing|what(?: is|['’]s)?|more) (?:left |there )?(?:for me )?to (?:approve|decide|review|answer|sign|confirm)\b"
    )
    .is(text)
}

fn aspect(text: &str) -> Option<Aspect> {
    let looks = form!(
        r"\bwhat (?:does|do|did|will) .*\b(?P<what>plan|diff|patch|change)s?\b.*\blooks? like\b"
    );
    if let Some(at) = looks.group(text, "what") {
        return Some(if text.get(at) == Some("plan") { Aspect::Plan } else { Aspect::Diff });
    }
    if form!(r"\b(?:why|who|which|how many|how come|should|explain|does|do)\b").is(text) {
        return None;
    }
    let pieces = form!(
        r"(?:^\W*(?:(?:so|hi|hey|ok|and) )*|\b(?:show|see|print|read|give|open|get|view|display|pull up|bring up|look at|check|want|need|let|what['’]?s|what is|in)\b.*?)\b(?P<what>plan|diff|patch|log|logs|transcript|output|history|events|timeline|report|summary|code changes|what it changed|what (?:has )?changed|changes it made)\b"
    );
    if form!(r"\bbeen (?:printing|saying|logging|writing)\b").is(text) {
        return Some(Aspect::Log);
    }
    let happened = form!(r"\bwhat(?:['’]?s| has| have)? happened (?:to|with|on|in)\b");
    if happened.is(text) {
        return Some(Aspect::History);
    }
    let first =
        form!(r"\b(?P<what>output|log|logs|diff|plan|history|report)\b (?:of|for|on|from)\b");
    let at = pieces.group(text, "what").or_else(|| first.group(text, "what"))?;
    Some(match text.get(at)? {
        "plan" => Aspect::Plan,
        "log" | "logs" | "transcript" | "output" => Aspect::Log,
        "history" | "events" | "timeline" => Aspect::History,
        "report" | "summary" => Aspect::Report,
        _ => Aspect::Diff,
    })
}

fn is_list(text: &str, points: bool, context: &Context) -> bool {
    if form!(r"\btasks (?:about|on|with|that mention|mentioning|for)\b").is(text) {
        return true;
    }
    if form!(r"^\W*(?:status|overview|summary)\W*$").is(text) {
        return context.last.is_none();
    }
    !points
        && form!(
            r"\b(?:tasks|jobs|ones|everything|rundown|recap|agents (?:busy|active|idle)|overview|agents working|going on)\b|^\W*(?:list|tasks)\W*$|\bany(?:thing|one)?\b.*\b(?:stuck|running|fail\w*|broken?|break|blocked|paused|done|wrong|new|red|crash\w*)\b|^\W*(?:so |hi |hey |ok )*what(?:['’]?s| is| are| has| have| did| got| was| were)?\b.*\b(?:running|fail(?:ed|ing|s)?|paused|stuck|done|finish(?:ed)?|cancell?ed|completed?|progress|queued?|review|planned|blocked|broke|merged|shipped|delivered)\b"
        )
        .is(text)
}

fn which(text: &str) -> Which {
    let kinds = [
        (Which::Failed, form!(r"\b(?:fail\w*|broken?|break|went wrong|crash\w*|red)\b")),
        (
            Which::Open,
            form!(r"\b(?:open|unfinished|outstanding) (?:tasks?|ones?|work|tickets?|jobs?)\b"),
        ),
        (Which::Cancelled, form!(r"\bcancell?ed\b")),
        (Which::Paused, form!(r"\b(?:paused|on hold)\b")),
        (Which::Stuck, form!(r"\b(?:stuck|blocked|escalated)\b")),
        (Which::Running, form!(r"\b(?:running|in progress|working on|active|busy)\b")),
        (
            Which::Completed,
            form!(r"\b(?:finish(?:ed)?|done|completed?|shipped|merged|delivered)\b"),
        ),
        (Which::Queued, form!(r"\b(?:queued?|pending|backlog)\b")),
        (Which::Planning, form!(r"\bplann(?:ed|ing)\b")),
        (Which::Review, form!(r"\breview(?:ed)?\b")),
        (Which::All, form!(r"\ball\b.*\btasks\b|\bevery task\b")),
    ];
    kinds.iter().find(|(_, form)| form.is(text)).map_or(Which::Open, |(which, _)| *which)
}

fn period(text: &str) -> Option<Period> {
    let periods = [
        (Period::Today, form!(r"\b(?:today|so far today|this morning)\b")),
        (Period::Yesterday, form!(r"\byesterday\b")),
        (Period::ThisWeek, form!(r"\bthis week\b")),
        (Period::LastWeek, form!(r"\blast week\b")),
        (Period::ThisMonth, form!(r"\bthis month\b")),
        (Period::LastMonth, form!(r"\blast month\b")),
    ];
    periods.iter().find(|(_, form)| form.is(text)).map(|(period, _)| *period)
}

fn search(own: &Own<'_>) -> Option<String> {
    let about = form!(
        r"\b(?:tasks|lessons?|learnings?|rules?|know) (?:about|on|with|that mention|mentioning|for) (?P<what>[^?.!\n]+)"
    );
    let at: Range<usize> = about.group(&own.text, "what")?;
    Some(own.said(at)).filter(|said| !said.is_empty())
}

fn is_ask(text: &str) -> bool {
    form!(
        r"\b(?:why|who|whose|how come|explain|should (?:i|we)|shall (?:i|we)|what if|what happens|what would|what will|(?:safe|wise|ok|okay|possible|worth|smart|good idea) to|a good idea|allowed to|may (?:i|we)|can (?:i|we)|could (?:i|we)|would (?:it|a|an|that|this)|suppose|options|risk|risky|attempts|error|council|model)\b|\bif (?:i|we|you)\b|^\W*(?:could|would|will|does|do (?:i|we|you|they|the|any|it|these|those|all|tests?|gates?)|did the (?:agent|council|model|plan|change|review)|should)\b|^\W*(?:which|what) (?:files?|tests?|rules?|gates?|lines?|did|does|do|was|went)\b|\bafter (?:i|we|you)\b|\b(?:is|are) that (?:ok|fine|right|normal)\b|\bor \w+ .*\?|\bwhat does that mean\b"
    )
    .is(text)
}

/// What a question about the work is about.
pub(crate) fn topic_of(text: &str) -> Topic {
    let topics = [
        (Topic::People, form!(r"\b(?:who|whose|by whom)\b")),
        (
            Topic::Consequence,
            form!(
                r"\bif (?:i|we|you)\b|\bwhat (?:happens|would|will)\b|\b(?:should|shall|can|may|could) (?:i|we)\b|\boptions\b|\b(?:safe|wise|ok|okay|possible) to\b"
            ),
        ),
        (Topic::Risk, form!(r"\b(?:risk\w*|danger\w*)\b")),
        (Topic::Time, form!(r"\b(?:how long|since when|when (?:did|was|were|has)|took|take)\b")),
        (Topic::Council, form!(r"\b(?:council|opinions?)\b")),
        (Topic::Knowledge, form!(r"\b(?:lessons?|knowledge|rules?|prohibitions?|conventions?)\b")),
        (
            Topic::Waiting,
            form!(
                r"\b(?:wait\w*|blocked|blocking|holding|needs? (?:me|us|my|a|an|human|input)|stuck|want from|paused|stopped|escalat\w*|ask(?:s|ed|ing)?)\b"
            ),
        ),
        (
            Topic::Change,
            form!(
                r"\b(?:chang\w*|files?|lines?|diff|patch|touch\w*|edit\w*|commit\w*|did (?:it|the agent|you) (?:do|make|write|add))\b"
            ),
        ),
        (
            Topic::Failure,
            form!(
                r"\b(?:why|fail\w*|wrong|brok\w*|error\w*|red|tests?|gates?|review\w*|crash\w*|tr(?:y|ied)|attempts?|pass\w*)\b"
            ),
        ),
    ];
    topics.iter().find(|(_, form)| form.is(text)).map_or(Topic::Whole, |(topic, _)| *topic)
}

fn is_status(text: &str) -> bool {
    form!(
        r"\b(?:status|satus|state|update|progress|news|how['’]?s|how is|how are|hows|how far|where|when will|stands?|doing|going|next for|happening|waiting|up with|tell me about|what about|how about|still|eta)\b|^\W*(?:so |hi |hey )*(?:is|are|was|has|have|did|does)\b|^\W*(?:show|open|see|view|display|describe)\b"
    )
    .is(text)
}

/// The task that a question points at; what was spoken of last where it points at nothing.
fn pointed(found: &Found, context: &Context, needed: bool) -> Result<Option<TaskId>, Unclear> {
    match found {
        Found::One(task) => Ok(Some(*task)),
        Found::Many(tasks) => Err(Unclear::Which { tasks: tasks.clone(), lessons: Vec::new() }),
        Found::Unknown(said) if needed => Err(Unclear::UnknownTask { said: said.clone() }),
        Found::Pronoun | Found::Nothing | Found::Unknown(_) => Ok(context.last),
    }
}

/// Nothing fits: a question is one about the work, and the rest is not understood.
fn last_resort(own: &Own<'_>, question: bool, found: &Found, context: &Context) -> Understood {
    let words = own.text.split_whitespace().count();
    if question && words > 2 {
        let task = pointed(found, context, false).ok().flatten();
        return understood(
            Intent::Ask { task, about: topic_of(&own.text) },
            40,
            "it is a question",
        );
    }
    understood(Intent::Unclear(Unclear::What), 40, "nothing in it is known")
}
