//! Parser for commands in a message.
//!
//! A command is a clause that starts with one of the [`COMMAND_WORDS`], after polite words at most.
//! "Can you approve it" is one. "Who approved it", "do not approve it" and "if I approve it" are
//! not, because other words precede the verb. Phrases that are not listed here are never commands.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};
use strum::Display;
use tamma_core::task_loop::{AnswerKind, State};

use self::Verb as V;
use crate::message_text::{MessageClause, MessageText, phrase};
use crate::task_reference;
use crate::{ChatContext, ChatTask};

/// Command as people phrase it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "lowercase")]
#[expect(missing_docs, reason = "names are self-explanatory")]
pub enum Verb {
    Approve,
    /// "Looks good": an approval, unless the message has another command.
    #[serde(rename = "fine")]
    #[strum(serialize = "fine")]
    LooksGood,
    Reject,
    Modify,
    Reply,
    Pause,
    Resume,
    Cancel,
    /// Pause or cancel; the person has to say which.
    Stop,
    Retry,
    Continue,
    /// Extra runs, dollars or tokens. Needs another command that uses them.
    Grant,
    #[strum(serialize = "roll back")]
    RollBack,
    Skip,
    Abandon,
    Override,
    Acknowledge,
    Rate,
    /// Ask the council.
    Convene,
    Retire,
    Add,
}

impl Verb {
    /// Returns true if the task's current state allows it. The state machine decides in the end.
    pub fn applies_to(self, task: &ChatTask) -> bool {
        let allows = |answer| task.answers.contains(&answer);
        let is_open = !task.state.is_terminal();
        match self {
            Self::Approve | Self::LooksGood => {
                allows(AnswerKind::Approve) || allows(AnswerKind::Accept)
            }
            Self::Reject => allows(AnswerKind::Reject) || allows(AnswerKind::RequestChanges),
            Self::Reply => allows(AnswerKind::Reply),
            Self::Modify | Self::Cancel | Self::Stop | Self::Grant => is_open,
            Self::Pause => is_open && !task.paused,
            Self::Resume => is_open && task.paused,
            Self::Retry => is_open && (allows(AnswerKind::Retry) || task.answers.is_empty()),
            Self::Continue => allows(AnswerKind::Continue) || (is_open && task.paused),
            Self::RollBack => allows(AnswerKind::RollBack),
            Self::Skip => allows(AnswerKind::Skip),
            Self::Abandon => allows(AnswerKind::Abandon),
            Self::Override => allows(AnswerKind::Override),
            Self::Acknowledge => !task.answers.is_empty(),
            Self::Rate => !is_open,
            Self::Convene if task.answers.is_empty() => matches!(
                task.state,
                State::Planning
                    | State::Validated
                    | State::InProgress
                    | State::Testing
                    | State::QualityReview
                    | State::Adjusting
            ),
            Self::Convene => allows(AnswerKind::Convene),
            Self::Retire | Self::Add => false,
        }
    }
}

/// Words that a change requires, including common typos. A message without one of them, or one of the
/// longer verbs with another typo, is never a change.
pub const COMMAND_WORDS: &[&str] = &[
    "approve",
    "aprove",
    "approv",
    "apporve",
    "approved",
    "approving",
    "lgtm",
    "looks",
    "sounds",
    "ship",
    "green",
    "thumbs",
    "go",
    "let",
    "accept",
    "accepting",
    "take",
    "merge",
    "merging",
    "reject",
    "rejct",
    "rejecting",
    "decline",
    "veto",
    "refuse",
    "deny",
    "turn",
    "send",
    "rework",
    "throw",
    "change",
    "changing",
    "modify",
    "modifying",
    "tweak",
    "adjust",
    "amend",
    "revise",
    "ask",
    "request",
    "pause",
    "pasue",
    "puase",
    "pausing",
    "freeze",
    "suspend",
    "put",
    "hold",
    "resume",
    "resmue",
    "resuming",
    "unpause",
    "unfreeze",
    "get",
    "continue",
    "continuing",
    "keep",
    "carry",
    "proceed",
    "cancel",
    "cancle",
    "cancell",
    "canceling",
    "cancelling",
    "kill",
    "killing",
    "abort",
    "scrap",
    "drop",
    "end",
    "stop",
    "halt",
    "retry",
    "retyr",
    "retrying",
    "rerun",
    "re-run",
    "restart",
    "redo",
    "try",
    "run",
    "have",
    "give",
    "roll",
    "rollback",
    "skip",
    "skipping",
    "abandon",
    "override",
    "lift",
    "acknowledge",
    "ack",
    "seen",
    "rate",
    "convene",
    "consult",
    "reply",
    "answer",
    "respond",
    "tell",
    "retire",
    "add",
    "create",
    "file",
    "open",
    "new",
    "task",
    "bug",
    "docs",
    "chore",
    "feature",
    "test",
    "fix",
    "implement",
    "write",
    "refactor",
    "update",
    "upgrade",
    "bump",
    "document",
    "rename",
    "remove",
    "delete",
    "improve",
    "optimize",
    "optimise",
    "support",
    "build",
    "migrate",
    "move",
    "extract",
    "replace",
    "clean",
    "cleanup",
    "make",
    "introduce",
    "port",
    "convert",
    "describe",
    "translate",
    "cover",
    "speed",
    "allow",
    "need",
    "want",
    "like",
    "sign",
    "authorize",
    "authorise",
    "greenlight",
    "bless",
    "fine",
    "happy",
    "accepted",
    "merged",
    "cancelled",
    "canceled",
    "rejected",
    "paused",
    "resumed",
    "retried",
    "skipped",
    "needs",
    "bin",
    "trash",
    "discard",
    "ditch",
    "dump",
    "nix",
    "call",
    "terminate",
    "close",
    "axe",
    "withdraw",
    "shut",
    "forget",
    "park",
    "wake",
    "start",
    "reactivate",
    "pick",
    "bring",
    "ignore",
    "bypass",
    "acknowledged",
    "got",
    "say",
    "inform",
    "set",
    "setup",
    "raise",
    "log",
    "submit",
    "register",
    "integrate",
    "develop",
    "enable",
    "expose",
    "provide",
    "simplify",
    "split",
    "deprecate",
    "switch",
    "generate",
    "hide",
    "reduce",
    "increase",
    "validate",
    "cache",
    "ensure",
    "prevent",
    "declined",
    "gets",
    "deserves",
    "star",
    "stars",
    "no",
    "back",
    "putting",
    "sending",
    "giving",
    "taking",
    "rolling",
    "abandoning",
    "stopping",
    "dropping",
];

/// Verbs that are recognised with one typo. Shorter ones would match too many other words.
const LONG_VERBS: [&str; 10] = [
    "acknowledge",
    "approve",
    "accept",
    "reject",
    "cancel",
    "resume",
    "unpause",
    "continue",
    "abandon",
    "override",
];

/// Words that are one letter from a verb, and none.
const NO_TYPOS: [&str; 4] = ["accent", "accents", "cancer", "cancers"];

/// Verbs as they follow "would you mind".
const GERUNDS: [(&str, &str); 10] = [
    ("putting", "put"),
    ("sending", "send"),
    ("giving", "give"),
    ("taking", "take"),
    ("rolling", "roll"),
    ("skipping", "skip"),
    ("abandoning", "abandon"),
    ("stopping", "stop"),
    ("dropping", "drop"),
    ("pausing", "pause"),
];

/// Words that can precede a command.
const POLITE_PREFIX: &str = r"^\s*(?:(?:(?:instead of|rather than) \w+ing .*?\b(?:just|please|simply)|please|pls|plz|kindly|ok|okay|k|alright|right|yes|yep|yeah|yup|no|nope|well|hi|hey|hello|yo|morning|good morning|tamma|thanks|thank you|thx|now|just|simply|then|also|so|actually|instead|sure|great|good|do|go ahead|let['’]?s|let us|(?:can|could|would|will) (?:you|u|ya|we)|mind|(?:you|u|we) (?:can|may)|you should|(?:i|we)(?:['’]d| would) like (?:you )?to|(?:i|we) (?:want|need) (?:you )?to|i hereby|i|we|feel free to|quick one|urgent|critical|asap|new instructions|for me|at once|back to work)\b[,:\s]*)*";

/// Command found in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChatCommand {
    /// Verb of the command.
    pub(crate) verb: Verb,
    /// Index of its clause.
    pub(crate) clause_index: usize,
    /// Start of the verb.
    pub(crate) start: usize,
    /// Range of the text that names its target.
    pub(crate) target: Range<usize>,
    /// Range of the text that it passes on, if it passes any on.
    pub(crate) payload: Option<Range<usize>>,
    /// Phrased as a statement, so only the task's title can precede it.
    pub(crate) is_statement: bool,
}

/// Phrasings of commands; the first match counts. Group `about` is the target, `words` the text to
/// pass on.
const COMMAND_PATTERNS: &[(Verb, &str)] = &[
    (
        V::Rate,
        r"^rate (?P<about>.+?)(?: (?:with |at |as )?(?:an? )?(?:[1-5]|one|two|three|four|five)(?: ?/ ?5| (?:out )?of (?:5|five))?(?: stars?)?)?\s*$",
    ),
    (
        V::Rate,
        r"^give (?P<about>.+?) (?:an? )?(?:[1-5]|one|two|three|four|five)(?: stars?\b| ?/ ?5\b| (?:out )?of (?:5|five)\b)",
    ),
    (
        V::Rate,
        r"^(?:an? )?(?:[1-5]|one|two|three|four|five)(?: stars?\b| ?/ ?5\b| (?:out )?of (?:5|five)\b)(?: for| to)?(?P<about>.*)$",
    ),
    (
        V::Convene,
        r"^(?:(?:ask|consult|convene|call) (?:the )?council|get (?:the )?council['’]?s (?:opinion|view|advice|take)) (?:on|about|for|to look at|to review)\b(?P<about>[^:,]*)(?:[:,] |$)(?P<words>(?s:.*))",
    ),
    (
        V::Convene,
        r"^(?:ask|consult) (?:the )?council,? (?P<words>(?P<about>(?:why|whether|what|how|if|which|who|where)\b(?s:.*)))",
    ),
    (
        V::Convene,
        r"^(?:ask|consult|convene|call) (?:the )?council(?P<about>)(?:: |$)(?P<words>(?s:.*))",
    ),
    (V::Acknowledge, r"^(?:acknowledge|ack|acknowledged)\b(?P<about>.*)"),
    (V::Acknowledge, r"^(?:['’]?ve |have )?seen\b(?P<about>.*)"),
    (V::Acknowledge, r"^(?:got|noted) (?P<about>.*\b(?:alert|reminder|warning)\b.*)"),
    (V::Acknowledge, r"^stop reminding\b(?P<about>.*)"),
    (V::RollBack, r"^(?:roll ?back)\b(?P<about>.*)"),
    (V::RollBack, r"^roll (?P<about>.+? back\b.*)"),
    (V::RollBack, r"^(?:move|take|put|set|bring|send|push|get) (?P<about>.+? back to .*)"),
    (V::RollBack, r"^go back (?P<about>to .*)"),
    (
        V::Approve,
        r"^(?:approve|aprove|approv|apporve|approving|authori[sz]e|greenlight|bless)\b(?P<about>.*)",
    ),
    (V::Approve, r"^(?:approved|accepted)\s*(?P<about>)$"),
    (V::Approve, r"^(?:sign|signing) off (?:on )?(?P<about>.*)"),
    (V::Approve, r"^(?:green light|thumbs up|go) (?:for|to)\b(?P<about>.*)"),
    (
        V::Approve,
        r"^give (?P<about>.+?) (?:the|an?|my|our) (?:go|green light|go-ahead|thumbs up|approval|ok|okay|blessing)\b",
    ),
    (V::Approve, r"^(?:lgtm|ship)\b(?P<about>.*)"),
    (V::Approve, r"^with (?P<about>.*)"),
    (V::Approve, r"^start (?P<about>it|that|this)\s*$"),
    (V::Approve, r"^(?:go|run|move forward|move ahead) with (?P<about>.*)"),
    (V::Approve, r"^let (?P<about>.+?) (?:run|start|begin|go ahead|happen)\b"),
    (V::Approve, r"^(?:accept|accepting|merge|merging)\b(?P<about>.*)"),
    (V::Approve, r"^take (?P<about>(?:it|the|that|this|#).*)"),
    (
        V::LooksGood,
        r"^(?:it |that |this )?(?:looks|sounds) (?:good|fine|great|ok|okay)\b(?: to me)?(?P<about>)\s*$",
    ),
    (V::LooksGood, r"^(?:['’]?m|am|are|['’]re) (?:fine|ok|okay|happy|good) with (?P<about>.*)"),
    (
        V::Reject,
        r"^(?:reject|rejct|rejecting|decline|veto|refuse|deny|rework|throw out|turn down)\b(?P<about>.*)",
    ),
    (V::Reject, r"^to (?P<about>.*)"),
    (V::Reject, r"^rejected\s*(?P<about>)$"),
    (V::Reject, r"^(?:that|it)['’]?s an? no (?:for|to|on) (?P<about>(?:the|that|this|#).*)"),
    (V::Reject, r"^needs (?:another round|more work|rework)\b(?P<about>)"),
    (V::Reject, r"^turn (?P<about>.+?) down\b"),
    (V::Reject, r"^send (?P<about>.+?) back\b"),
    (V::Retire, r"^retire\b(?P<about>.*)"),
    (
        V::Modify,
        r"^(?:change|changing|modify|modifying|tweak|adjust|amend|revise)\b(?P<about>[^:]*?)(?: (?:to|so that it|so that|so it) |: |$)(?P<words>(?s:.*))",
    ),
    (
        V::Modify,
        r"^(?:update|edit) (?P<about>(?:the )?[a-z0-9# -]*?(?:task|plan|one)|#\d+|it)(?: (?:to|so that it|so that|so it) |: )(?P<words>(?s:.+))",
    ),
    (V::Modify, r"^(?:have|make) (?P<about>the [a-z0-9 -]+? (?:task|plan|one)) (?P<words>(?s:.+))"),
    (
        V::Modify,
        r"^(?:ask for|request) changes (?:on|to|for|in)\b(?P<about>[^:,]*)(?:[:,] |$)(?P<words>(?s:.*))",
    ),
    (V::Pause, r"^(?:pause|pasue|puase|pausing|freeze|suspend|park)\b(?P<about>.*)"),
    (V::Pause, r"^put (?P<about>.+?) (?:on hold|on ice|on pause|aside)\b"),
    (V::Pause, r"^give (?P<about>.+?) a (?:break|rest|pause)\b"),
    (V::Pause, r"^hold off (?:on|with)\b(?P<about>.*)"),
    (V::Pause, r"^hold (?P<about>(?:the|that|this|it|#).*)"),
    (
        V::Resume,
        r"^(?:resume|resmue|resuming|unpause|unfreeze|reactivate|wake up|wake)\b(?P<about>.*)",
    ),
    (V::Resume, r"^get (?P<about>.+?) (?:going|moving|started)(?: again)?\b"),
    (V::Resume, r"^(?:start|pick) (?P<about>.+?) (?:up )?again\b"),
    (V::Resume, r"^pick (?P<about>.+?) (?:back )?up\b"),
    (V::Continue, r"^(?:continue|continuing|keep going|go on|carry on|proceed)\b(?P<about>.*)"),
    (V::Continue, r"^let (?P<about>.+?) (?:continue|go on|carry on|proceed|keep going)\b"),
    (
        V::Cancel,
        r"^(?:cancel|cancle|cancell|canceling|cancelling|kill|killing|abort|scrap|drop|end|bin|trash|discard|ditch|dump|nix|call off|terminate|close|axe|withdraw|shut down|forget about)\b(?P<about>.*)",
    ),
    (V::Cancel, r"^(?:call|shut) (?P<about>.+?) (?:off|down)\b"),
    (V::Cancel, r"^(?:delete|remove|get rid of)(?P<about> .* (?:task|one)| #\d+| it)$"),
    (
        V::Cancel,
        r"^(?:delete|remove|get rid of)(?P<about> .*\b(?:lesson|learning|rule|convention)s?\b.*)",
    ),
    (V::Stop, r"^(?:stop|halt)\b(?P<about>.*)"),
    (V::Retry, r"^(?:retry|retyr|retrying|rerun|re-run|restart|redo)\b(?P<about>.*)"),
    (V::Retry, r"^(?:try|run)(?P<about>.*?) (?:again|once more)\b"),
    (
        V::Retry,
        r"^(?:have |do )?(?:another|one more|a new) (?:go|try|attempt|run|shot) (?:at|for|on|with|of)\b(?P<about>.*)",
    ),
    (V::Retry, r"^give (?P<about>.+?) (?:another|one more) (?:try|go|shot|chance|run|attempt)\b"),
    (V::Grant, r"^give (?P<about>.+?) (?:another |an extra |extra )?(?:\$ ?)?\d"),
    (
        V::Grant,
        r"^(?:['’]?ll |will )?grant (?P<about>.+?) (?:another |an extra |extra )?(?:\$ ?)?\d",
    ),
    (V::Skip, r"^(?:skip|skipping)\b(?P<about>.*)"),
    (V::Skip, r"^(?:ignore|bypass) (?P<about>.*\b(?:step|check|gate|failure|tests?)\b.*)"),
    (V::Abandon, r"^(?:abandon|give up on|give up)\b(?P<about>.*)"),
    (V::Override, r"^override\b(?P<about>.*)"),
    (V::Override, r"^lift the (?:block|prohibition|ban)\b(?P<about>.*)"),
    (V::Reply, r"^(?:reply|answer|respond)\b(?P<about>[^:]*?)(?:: |$)(?P<words>(?s:.*))"),
    (
        V::Reply,
        r"^(?:tell|inform) (?P<about>(?:the |that )?agent (?:of|for|on) .+?)(?:: |, | to | that )(?P<words>(?s:.+))",
    ),
    (
        V::Reply,
        r"^(?:tell|inform) (?P<about>it|them|(?:the |that )?agent)[:,]? (?:to |that )?(?P<words>(?s:.+))",
    ),
    (V::Reply, r"^(?:tell|inform) (?P<about>.+?)(?:: |, | to | that )(?P<words>(?s:.+))"),
    (V::Reply, r"^say to (?P<about>.+?)(?:: |, | that )(?P<words>(?s:.+))"),
    (V::Reply, r"^let (?P<about>.+?) know:? (?:that )?(?P<words>(?s:.+))"),
    (
        V::Add,
        r"^(?P<about>)(?P<words>(?:(?:high|medium|low|top)[- ]prio(?:rity)? (?:bug|task|ticket|feature|chore)|new|add|create|file|open|make|fix|implement|write|refactor|update|upgrade|bump|document|rename|remove|delete|improve|optimi[sz]e|support|build|migrate|move|extract|replace|clean ?up|introduce|port|convert|describe|translate|cover|speed up|allow|need|want|['’]d like|would like|task|bug|docs|chore|feature|test|set ?up|raise|log|submit|register|get rid of|integrate|develop|enable|expose|provide|simplify|split|deprecate|switch|generate|hide|reduce|increase|validate|cache|ensure|prevent)\b.*)",
    ),
];

/// Commands phrased as a statement about a task. All words before them must be from the task's
/// title: "the export can be cancelled" is one, "Mia thinks the export can be cancelled" is not.
const STATEMENT_PATTERNS: &[(Verb, &str)] = &[
    (
        V::Approve,
        r"^(?P<about>.+?) (?:can|may) (?:now )?(?:be (?:approved|accepted|merged)|go in|go ahead|be shipped)\s*(?:now)?$",
    ),
    (
        V::Approve,
        r"^(?P<about>.+?) (?:(?:is |are )?(?:now |hereby )?(?:approved|accepted|lgtm)|(?:is|are) good to go|gets my (?:approval|ok|okay|go|blessing))\s*(?:now)?$",
    ),
    (V::Reject, r"^(?P<about>.+?) (?:is |are )?(?:now |hereby )?(?:rejected|declined)\s*$"),
    (
        V::Continue,
        r"^(?P<about>.+?) (?:can|may) (?:now )?(?:continue|go on|carry on|proceed|keep going)\s*(?:now|again)?$",
    ),
    (
        V::RollBack,
        r"^(?P<about>.+?) (?:goes |should go |has to go )?back to (?:the )?(?:plan|approval|implement|cod|test|review)",
    ),
    (
        V::Rate,
        r"^(?P<about>.+?) (?:gets|deserves) (?:an? )?(?:[1-5]|one|two|three|four|five)(?: stars?| ?/ ?5| (?:out )?of (?:5|five))\s*$",
    ),
    (
        V::Reject,
        r"^(?P<about>.+?) (?:can be rejected|needs (?:another round|more work|rework))\s*$",
    ),
    (
        V::Cancel,
        r"^(?P<about>.+?) (?:can|may) (?:now )?be (?:cancell?ed|dropped|killed|closed)\s*(?:now)?$",
    ),
    (V::Pause, r"^(?P<about>.+?) on hold(?: (?:please|pls|plz|for now))+\s*$"),
    (V::Pause, r"^(?P<about>.+?) (?:can|may) (?:now )?be paused\s*(?:now)?$"),
    (V::Resume, r"^(?P<about>.+?) (?:can|may) (?:now )?be resumed\s*(?:now)?$"),
    (V::Retry, r"^(?P<about>.+?) (?:can|may) (?:now )?be (?:retried|rerun)\s*(?:now)?$"),
    (V::Skip, r"^(?P<about>.+?) (?:can|may) (?:now )?be skipped\s*(?:now)?$"),
];

fn compile_patterns(patterns: &'static [(Verb, &'static str)]) -> Vec<(Verb, Regex)> {
    let compile = |(verb, pattern): &(Verb, &str)| {
        let regex = Regex::new(pattern);
        debug_assert!(regex.is_ok(), "{regex:?}");
        Some((*verb, regex.ok()?))
    };
    patterns.iter().filter_map(compile).collect()
}

static COMMAND_REGEXES: LazyLock<Vec<(Verb, Regex)>> =
    LazyLock::new(|| compile_patterns(COMMAND_PATTERNS));
static STATEMENT_REGEXES: LazyLock<Vec<(Verb, Regex)>> =
    LazyLock::new(|| compile_patterns(STATEMENT_PATTERNS));

/// Returns true if `text` contains one of the [`COMMAND_WORDS`], or a verb with a typo.
pub(crate) fn has_command_word(text: &str) -> bool {
    let is_separator = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
    text.split(is_separator)
        .any(|word| COMMAND_WORDS.contains(&word) || intended_verb(word).is_some())
}

/// Returns the verb that a word with one typo stands for. An inflected verb is no typo: "approves"
/// reports something.
fn intended_verb(word: &str) -> Option<&'static str> {
    if word.len() < 5 || COMMAND_WORDS.contains(&word) || NO_TYPOS.contains(&word) {
        return None;
    }
    let is_inflected = |verb: &str| {
        word.strip_prefix(verb).is_some_and(|ending| matches!(ending, "s" | "d" | "r"))
    };
    LONG_VERBS.into_iter().find(|verb| {
        word.as_bytes().first() == verb.as_bytes().first()
            && !is_inflected(verb)
            && strsim::damerau_levenshtein(word, verb) == 1
    })
}

/// Returns the verb of the patterns that the first word stands for, and the length of the word:
/// "appove" is "approve", and "would you mind putting" asks to put.
fn corrected_verb(text: &str) -> Option<(&'static str, usize)> {
    let at = phrase!(r"^[a-z]+").find(text)?;
    let word = text.get(at.clone())?;
    let gerund = GERUNDS.iter().find(|(gerund, _)| *gerund == word);
    let verb = gerund.map(|(_, verb)| *verb).or_else(|| intended_verb(word))?;
    Some((verb, at.end))
}

/// Returns the commands of a message, in their order.
pub(crate) fn parse_commands(message: &MessageText<'_>, context: &ChatContext) -> Vec<ChatCommand> {
    let mut commands = Vec::new();
    // "What is the difference between pause and cancel" asks about the words.
    if !has_command_word(&message.masked)
        || phrase!(r"\bdifference between\b").is_match(&message.masked)
    {
        return commands;
    }
    for (index, clause) in message.clauses.iter().enumerate() {
        let command = parse_command(message, index, clause).filter(|command| {
            let text = message.masked.get(command.start..clause.range.end).unwrap_or_default();
            command.is_statement || !task_reference::starts_with_title(text, context)
        });
        let Some(command) = command else {
            // "In the transcript I see: approve it" is a report. "Please:" and "the export:"
            // introduce a command.
            if clause.ends_with_colon && !can_precede_command(message.clause_text(clause), context)
            {
                break;
            }
            continue;
        };
        let takes_rest = command.payload.is_some() || clause.ends_with_colon;
        commands.push(command);
        if takes_rest {
            break;
        }
    }
    commands
}

/// Returns true if a command can follow this clause and its colon: it is polite, or names a task.
fn can_precede_command(clause: &str, context: &ChatContext) -> bool {
    let polite = phrase!(POLITE_PREFIX).find(clause).map_or(0, |polite| polite.end);
    let rest = clause.get(polite..).unwrap_or_default();
    let is_lesson = phrase!(r"\b(?:lesson|rule|learning|convention)s?\s*$");
    rest.trim().is_empty()
        || is_lesson.is_match(rest)
        || task_reference::is_task_name(rest, context, Verb::Cancel)
}

/// Returns the part of a clause where a command can start, after polite words, with its offset.
pub(crate) fn command_head<'a>(
    message: &'a MessageText<'_>,
    clause: &MessageClause,
) -> Option<(usize, &'a str)> {
    let text = message.clause_text(clause);
    let polite = phrase!(POLITE_PREFIX).find(text)?;
    let before = text.get(polite.clone())?;
    // "Approve it?" is a question; "can you approve it?" is a request.
    if clause.is_question
        && !phrase!(r"\b(?:can|could|would|will) (?:you|u|ya|we)\b").is_match(before)
    {
        return None;
    }
    let start = clause.range.start + polite.end;
    let head = text.get(polite.end..)?;
    // "Approving it was wrong" is a remark; "would you mind approving it" is a request.
    if phrase!(r"^\w+ing\b").is_match(head) && !phrase!(r"\bmind\s*$").is_match(before) {
        return None;
    }
    // "Do I need to approve it" asks.
    if phrase!(r"\bdo (?:i|we|you|u)\b").is_match(before) {
        return None;
    }
    // "With it" is an approval only after "go ahead", and "to it" a rejection only after "no".
    if head.starts_with("with ") && !phrase!(r"\bgo ahead\s*$").is_match(before) {
        return None;
    }
    if head.starts_with("to ") && !phrase!(r"\b(?:no|nope)\s*$").is_match(before) {
        return None;
    }
    Some((start, head))
}

/// Returns the command in a clause.
pub(crate) fn parse_command(
    message: &MessageText<'_>,
    clause_index: usize,
    clause: &MessageClause,
) -> Option<ChatCommand> {
    let (start, head) = command_head(message, clause)?;
    let shift = |range: Range<usize>| start + range.start..start + range.end;
    for (verb, regex) in STATEMENT_REGEXES.iter() {
        let Some(target) = regex.captures(head).and_then(|captures| captures.name("about")) else {
            continue;
        };
        // "Roll the export back to planning" is a command, "the export goes back" a statement.
        let first = target.as_str().split_whitespace().next().unwrap_or_default();
        if *verb == Verb::RollBack && COMMAND_WORDS.contains(&first) {
            continue;
        }
        return Some(ChatCommand {
            verb: *verb,
            clause_index,
            start,
            target: shift(target.range()),
            payload: None,
            is_statement: true,
        });
    }
    // "Support is waiting" and "retry would help" are remarks.
    if phrase!(r"^\w+ (?:is|are|was|were|has|does|did|will|would|should|can|could|might)\b")
        .is_match(head)
    {
        return None;
    }
    // "The plan is fine, go ahead" is an approval; "go ahead and cancel it" is not.
    let is_last = clause_index + 1 == message.clauses.len();
    let go_ahead = phrase!(r"\bgo ahead\s*$");
    if head.trim().is_empty() && clause_index > 0 && is_last {
        let is_approval = go_ahead.is_match(message.clause_text(clause));
        return is_approval.then_some(ChatCommand {
            verb: Verb::LooksGood,
            clause_index,
            start,
            target: start..start,
            payload: None,
            is_statement: false,
        });
    }
    let corrected = corrected_verb(head);
    let correct = |text: &str| match corrected {
        Some((verb, length)) => format!("{verb}{}", text.get(length..).unwrap_or_default()),
        None => text.to_owned(),
    };
    // Position in the message of one in the corrected text.
    let position = |at: usize| match corrected {
        Some((verb, length)) => start + (at + length).saturating_sub(verb.len()),
        None => start + at,
    };
    let shift = |range: Range<usize>| position(range.start)..position(range.end);
    let (head, all) = (correct(head), correct(message.masked.get(start..)?));
    for (verb, regex) in COMMAND_REGEXES.iter() {
        // Text to pass on extends to the end of the message.
        let takes_payload = matches!(verb, Verb::Reply | Verb::Modify | Verb::Add | Verb::Convene);
        let rest = if takes_payload { &*all } else { &*head };
        let Some(captures) = regex.captures(rest) else { continue };
        let target = captures.name("about")?;
        // "Tell me", "let us know" and "give me 3" are questions.
        if matches!(verb, Verb::Reply | Verb::Grant | Verb::Rate)
            && phrase!(r"^\s*(?:me|us)\b").is_match(target.as_str())
        {
            return None;
        }
        let payload =
            captures.name("words").map_or(rest.len()..rest.len(), |payload| payload.range());
        return Some(ChatCommand {
            verb: *verb,
            clause_index,
            start,
            target: shift(target.range()),
            payload: takes_payload.then(|| shift(payload)),
            is_statement: false,
        });
    }
    None
}
