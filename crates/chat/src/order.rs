//! Where an order stands, and what it orders.
//!
//! An order is a clause that begins with one of the [`VERBS`], after nothing but polite words. "Can
//! you approve it" is one; "who approved it", "do not approve it" and "if I approve it" are none,
//! because something else stands before the verb. What is not listed here orders nothing.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};
use strum::Display;
use tamma_core::task_loop::Answer;

use self::Verb as V;
use crate::refer;
use crate::words::{Clause, Own, form};
use crate::{Context, Subject};

/// What a person can order, in their words rather than in those of the commands.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "lowercase")]
#[expect(missing_docs, reason = "each is the order of its name")]
pub enum Verb {
    Approve,
    /// "Looks good": an approval, where nothing else is said.
    Fine,
    Reject,
    Modify,
    Reply,
    Pause,
    Resume,
    Cancel,
    /// To pause or to cancel: they have to say which.
    Stop,
    Retry,
    Continue,
    /// To let it use more. What for has to be said too.
    Grant,
    #[strum(serialize = "roll back")]
    RollBack,
    Skip,
    Abandon,
    Override,
    Acknowledge,
    Retire,
    Add,
}

impl Verb {
    /// Whether it can be done to a task as it is now. The machine has the last word.
    pub fn fits(self, task: &Subject) -> bool {
        let may = |answer| task.answers.contains(&answer);
        let live = !task.state.is_terminal();
        match self {
            Self::Approve | Self::Fine => may(Answer::Approve) || may(Answer::Accept),
            Self::Reject => may(Answer::Reject) || may(Answer::Rework),
            Self::Reply => may(Answer::Reply),
            Self::Modify | Self::Cancel | Self::Stop | Self::Grant => live,
            Self::Pause => live && !task.paused,
            Self::Resume => live && task.paused,
            Self::Retry => live && (may(Answer::Retry) || task.answers.is_empty()),
            Self::Continue => may(Answer::Continue) || (live && task.paused),
            Self::RollBack => may(Answer::RollBack),
            Self::Skip => may(Answer::Skip),
            Self::Abandon => may(Answer::Abandon),
            Self::Override => may(Answer::Override),
            Self::Acknowledge => !task.answers.is_empty(),
            Self::Retire | Self::Add => false,
        }
    }
}

/// Words of which a message must have one to change anything, usual slips of the hand among them.
/// A message without one is never a change, whatever else it says.
pub const VERBS: &[&str] = &[
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
];

/// What may stand before an order.
const POLITE: &str = r"^\s*(?:(?:(?:instead of|rather than) \w+ing .*?\b(?:just|please|simply)|please|pls|plz|kindly|ok|okay|k|alright|right|yes|yep|yeah|yup|no|nope|well|hi|hey|hello|tamma|thanks|thank you|thx|now|just|simply|then|also|so|actually|instead|sure|great|good|do|go ahead|let['’]?s|let us|(?:can|could|would|will) (?:you|we)|mind|(?:you|we) (?:can|may)|you should|(?:i|we)(?:['’]d| would) like (?:you )?to|(?:i|we) (?:want|need) (?:you )?to|i hereby|i|we|feel free to|quick one|urgent|critical|asap|new instructions|for me|at once|back to work)\b[,:\s]*)*";

/// An order that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    /// What is ordered.
    pub(crate) verb: Verb,
    /// The clause it is in, as its place among the clauses.
    pub(crate) clause: usize,
    /// Where the verb begins.
    pub(crate) start: usize,
    /// Where it is said what it is for.
    pub(crate) about: Range<usize>,
    /// Where the words are that it passes on, for those that pass words on.
    pub(crate) words: Option<Range<usize>>,
    /// Whether it is said as a statement, so that nothing but its task may stand before it.
    pub(crate) stated: bool,
}

/// How orders are said. The group `about` is what an order is for, `words` what it passes on. The
/// first that fits counts.
const FORMS: &[(Verb, &str)] = &[
    (V::Acknowledge, r"^(?:acknowledge|ack|acknowledged)\b(?P<about>.*)"),
    (V::Acknowledge, r"^(?:['’]?ve |have )?seen\b(?P<about>.*)"),
    (V::Acknowledge, r"^(?:got|noted) (?P<about>.*\b(?:alert|reminder|warning)\b.*)"),
    (V::Acknowledge, r"^stop reminding\b(?P<about>)"),
    (V::RollBack, r"^(?:roll ?back)\b(?P<about>.*)"),
    (V::RollBack, r"^roll (?P<about>.+? back\b.*)"),
    (V::RollBack, r"^(?:move|take|put|set|bring|send|push|get) (?P<about>.+? back to .*)"),
    (V::RollBack, r"^go back (?P<about>to .*)"),
    (
        V::Approve,
        r"^(?:approve|aprove|approv|apporve|approving|authori[sz]e|greenlight|bless)\b(?P<about>.*)",
    ),
    (V::Approve, r"^approved\s*(?P<about>)$"),
    (V::Approve, r"^(?:sign|signing) off (?:on )?(?P<about>.*)"),
    (V::Approve, r"^(?:green light|thumbs up|go) (?:for|to)\b(?P<about>.*)"),
    (
        V::Approve,
        r"^give (?P<about>.+?) (?:the|an?|my|our) (?:go|green light|go-ahead|thumbs up|approval|ok|okay|blessing)\b",
    ),
    (V::Approve, r"^(?:lgtm|ship)\b(?P<about>.*)"),
    (V::Approve, r"^with (?P<about>.*)"),
    (V::Approve, r"^(?:go|run|move forward|move ahead) with (?P<about>.*)"),
    (V::Approve, r"^let (?P<about>.+?) (?:run|start|begin|go ahead|happen)\b"),
    (V::Approve, r"^(?:accept|accepting|merge|merging)\b(?P<about>.*)"),
    (V::Approve, r"^take (?P<about>(?:it|the|that|this|#).*)"),
    (
        V::Fine,
        r"^(?:it |that |this )?(?:looks|sounds) (?:good|fine|great|ok|okay)\b(?: to me)?(?P<about>)\s*$",
    ),
    (V::Fine, r"^(?:['’]?m|am|are|['’]re) (?:fine|ok|okay|happy|good) with (?P<about>.*)"),
    (
        V::Reject,
        r"^(?:reject|rejct|rejecting|decline|veto|refuse|deny|rework|throw out|turn down)\b(?P<about>.*)",
    ),
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
    (V::Pause, r"^put (?P<about>.+?) (?:on hold|on ice|aside)\b"),
    (V::Pause, r"^give (?P<about>.+?) a (?:break|rest|pause)\b"),
    (V::Pause, r"^hold off (?:on|with)\b(?P<about>.*)"),
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
        r"^(?P<about>)(?P<words>(?:new|add|create|file|open|make|fix|implement|write|refactor|update|upgrade|bump|document|rename|remove|delete|improve|optimi[sz]e|support|build|migrate|move|extract|replace|clean ?up|introduce|port|convert|describe|translate|cover|speed up|allow|need|want|['’]d like|would like|task|bug|docs|chore|feature|test|set ?up|raise|log|submit|register|get rid of|integrate|develop|enable|expose|provide|simplify|split|deprecate|switch|generate|hide|reduce|increase|validate|cache|ensure|prevent)\b.*)",
    ),
];

/// Orders that are said as a statement of a task. Every word before them must be of the task's
/// title: "the export can be cancelled" is one, "Mia thinks the export can be cancelled" is none.
const STATED: &[(Verb, &str)] = &[
    (
        V::Approve,
        r"^(?P<about>.+?) (?:can|may) (?:now )?(?:be (?:approved|accepted|merged)|go in|go ahead|be shipped)\s*(?:now)?$",
    ),
    (
        V::Reject,
        r"^(?P<about>.+?) (?:can be rejected|needs (?:another round|more work|rework))\s*$",
    ),
    (
        V::Cancel,
        r"^(?P<about>.+?) (?:can|may) (?:now )?be (?:cancell?ed|dropped|killed|closed)\s*(?:now)?$",
    ),
    (V::Pause, r"^(?P<about>.+?) (?:can|may) (?:now )?be paused\s*(?:now)?$"),
    (V::Resume, r"^(?P<about>.+?) (?:can|may) (?:now )?be resumed\s*(?:now)?$"),
    (V::Retry, r"^(?P<about>.+?) (?:can|may) (?:now )?be (?:retried|rerun)\s*(?:now)?$"),
    (V::Skip, r"^(?P<about>.+?) (?:can|may) (?:now )?be skipped\s*(?:now)?$"),
];

fn ready(forms: &'static [(Verb, &'static str)]) -> Vec<(Verb, Regex)> {
    let made = |(verb, form): &(Verb, &str)| {
        let made = Regex::new(form);
        debug_assert!(made.is_ok(), "{made:?}");
        Some((*verb, made.ok()?))
    };
    forms.iter().filter_map(made).collect()
}

static ORDERS: LazyLock<Vec<(Verb, Regex)>> = LazyLock::new(|| ready(FORMS));
static STATEMENTS: LazyLock<Vec<(Verb, Regex)>> = LazyLock::new(|| ready(STATED));

/// Whether a text has one of the [`VERBS`] in it.
pub(crate) fn has_verb(text: &str) -> bool {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
    text.split(word).any(|word| VERBS.contains(&word))
}

/// The orders of a message, in their order.
pub(crate) fn orders(own: &Own<'_>, context: &Context) -> Vec<Order> {
    let mut orders = Vec::new();
    if !has_verb(&own.text) {
        return orders;
    }
    for (place, clause) in own.clauses.iter().enumerate() {
        let Some(order) = order_in(own, place, clause) else {
            // "In the transcript I see: approve it" tells. "Please:" and "the export:" do not.
            if clause.colon && !leads(own.clause(clause), context) {
                break;
            }
            continue;
        };
        let takes_the_rest = order.words.is_some() || clause.colon;
        orders.push(order);
        if takes_the_rest {
            break;
        }
    }
    orders
}

/// Whether an order may follow a clause and its colon: it is polite, or names the task.
fn leads(clause: &str, context: &Context) -> bool {
    let polite = form!(POLITE).find(clause).map_or(0, |polite| polite.end);
    let rest = clause.get(polite..).unwrap_or_default();
    rest.trim().is_empty() || refer::is_bare(rest, context, Verb::Cancel)
}

/// The order that a clause gives.
pub(crate) fn order_in(own: &Own<'_>, place: usize, clause: &Clause) -> Option<Order> {
    let said = own.clause(clause);
    let polite = form!(POLITE).find(said)?;
    let before = said.get(polite.clone())?;
    // "Approve it?" asks; "can you approve it?" does not.
    if clause.asked && !form!(r"\b(?:can|could|would|will) (?:you|we)\b").is(before) {
        return None;
    }
    let start = clause.at.start + polite.end;
    let head = said.get(polite.end..)?;
    // "Approving it was wrong" tells; "would you mind approving it" orders.
    if form!(r"^\w+ing\b").is(head) && !form!(r"\bmind\s*$").is(before) {
        return None;
    }
    // "Go ahead with it" is an approval only with the words before.
    if head.starts_with("with ") && !form!(r"\bgo ahead\s*$").is(before) {
        return None;
    }
    let shift = |range: Range<usize>| start + range.start..start + range.end;
    for (verb, form) in STATEMENTS.iter() {
        let Some(about) = form.captures(head).and_then(|found| found.name("about")) else {
            continue;
        };
        let (about, stated) = (shift(about.range()), true);
        return Some(Order { verb: *verb, clause: place, start, about, words: None, stated });
    }
    // "Support is waiting" and "retry would help" tell.
    if form!(r"^\w+ (?:is|are|was|were|has|does|did|will|would|should|can|could|might)\b").is(head)
    {
        return None;
    }
    for (verb, form) in ORDERS.iter() {
        // Where words are passed on, they go to the end of the message.
        let takes_words = matches!(verb, Verb::Reply | Verb::Modify | Verb::Add);
        let rest = if takes_words { own.text.get(start..)? } else { head };
        let Some(found) = form.captures(rest) else { continue };
        let about = found.name("about")?;
        // "Tell me" and "let us know" ask.
        if *verb == Verb::Reply && form!(r"^\s*(?:me|us)\b").is(about.as_str()) {
            return None;
        }
        let words = found.name("words").map_or(rest.len()..rest.len(), |words| words.range());
        return Some(Order {
            verb: *verb,
            clause: place,
            start,
            about: shift(about.range()),
            words: takes_words.then(|| shift(words)),
            stated: false,
        });
    }
    None
}
