//! The little English that is needed to see what a denial reaches.

use super::Word;

/// What a denial reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// The rest of the clause: "we never call it in a loop".
    Clause,
    /// Only the thing that follows: "instead of a float the table has integers".
    Object,
    /// The same at the head of a clause, where a comma ends it: "instead of a float, integers".
    Front,
}

/// Words that deny, or that only look as if they did.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cue {
    /// How many words it has.
    pub(super) words: usize,
    /// What it denies; nothing, where it only looks so.
    pub(super) reach: Option<Reach>,
}

/// The longest list item between commas, in words: what is longer is a statement of its own.
pub(super) const LISTED: usize = 4;

/// What looks like a denial and is none: a bound, a climax, or a way to say that something is so.
const NEITHER: &[&[&str]] = &[
    &["not", "only"],
    &["not", "just"],
    &["not", "merely"],
    &["not", "simply"],
    &["not", "enough"],
    &["not", "sufficient"],
    &["not", "until"],
    &["not", "more", "than"],
    &["not", "less", "than"],
    &["no", "longer", "than"],
    &["no", "more", "than"],
    &["no", "less", "than"],
    &["no", "fewer", "than"],
    &["no", "later", "than"],
    &["no", "sooner"],
    &["no", "matter"],
    &["no", "doubt"],
    &["no", "question"],
    &["no", "other", "than"],
    &["no", "risk", "in"],
    &["no", "harm", "in"],
    &["no", "danger", "in"],
    &["no", "problem", "with"],
    &["no", "problem", "in"],
    &["no", "objection", "to"],
    &["nothing", "but"],
    &["none", "but"],
    &["nothing", "wrong", "with"],
    &["why", "not"],
    &["whether", "or", "not"],
    &["without", "doubt"],
    &["without", "question"],
    &["cannot", "but"],
    &["avoid", "not"],
];

/// What denies the rest of its clause.
const CLAUSE: &[&[&str]] = &[
    &["no", "longer"],
    &["not"],
    &["no"],
    &["never"],
    &["nothing"],
    &["none"],
    &["nobody"],
    &["nowhere"],
    &["neither"],
    &["nor"],
    &["cannot"],
    &["nothing", "to", "do", "with"],
];

/// What denies the thing that follows.
const OBJECT: &[&[&str]] = &[
    &["without"],
    &["instead", "of"],
    &["in", "place", "of"],
    &["in", "lieu", "of"],
    &["rather", "than"],
    &["other", "than"],
    &["apart", "from"],
    &["except"],
    &["except", "for"],
    &["excluding"],
    &["rid", "of"],
    &["free", "of"],
    &["free", "from"],
    &["away", "from"],
    &["refrain", "from"],
    &["refrains", "from"],
    &["abstain", "from"],
    &["clear", "of"],
    &["out", "of", "scope", "is"],
    &["out", "of", "scope", "are"],
    &["removal", "of"],
    &["replacement", "for"],
    &["replacement", "of"],
    &["substitute", "for"],
    &["stop", "using"],
    &["stops", "using"],
    &["stop", "calling"],
    &["stops", "calling"],
    &["switch", "from"],
    &["switches", "from"],
    &["switching", "from"],
    &["move", "from"],
    &["moves", "from"],
    &["migrate", "from"],
    &["migrates", "from"],
    &["keep", "out"],
    &["keeps", "out"],
    &["keeping", "out"],
    &["leave", "out"],
    &["leaves", "out"],
    &["leaving", "out"],
    &["take", "out"],
    &["takes", "out"],
    &["leave", "alone"],
    &["leaves", "alone"],
];

/// Verbs whose object is not to be: in all their forms.
const OBJECT_VERBS: &[&str] = &[
    "avoid",
    "remove",
    "replace",
    "forbid",
    "prohibit",
    "disallow",
    "refuse",
    "reject",
    "ban",
    "prevent",
    "omit",
    "exclude",
    "eliminate",
    "supersede",
    "outlaw",
];

/// What follows the thing that is denied, after a verb of being or by itself.
const LEFT: &[&[&str]] = &[
    &["untouched"],
    &["unchanged"],
    &["unaffected"],
    &["out", "of", "scope"],
    &["left", "alone"],
    &["left", "out"],
    &["left", "as"],
    &["left", "untouched"],
    &["left", "unchanged"],
    &["stays", "as"],
    &["stay", "as"],
    &["remains", "as"],
    &["remain", "as"],
    &["as", "it", "is"],
    &["as", "they", "are"],
    &["as", "it", "was"],
    &["as", "before"],
    &["goes", "away"],
    &["go", "away"],
    &["is", "gone"],
    &["are", "gone"],
    &["disappears"],
    &["disappear"],
];

/// What a thing can be said to be, so that it is denied: "unsigned bodies stay refused".
const REFUSED: &[&str] = &[
    "refused",
    "forbidden",
    "prohibited",
    "banned",
    "disallowed",
    "rejected",
    "excluded",
    "avoided",
    "removed",
    "replaced",
    "eliminated",
    "omitted",
    "gone",
    "impossible",
];

/// What a thing can be said not to be, so that it is denied: "eval is not used". That it is not slow
/// says nothing against it.
const DONE: &[&str] = &[
    "used",
    "touched",
    "changed",
    "needed",
    "required",
    "involved",
    "affected",
    "part",
    "allowed",
    "permitted",
    "called",
    "added",
    "introduced",
    "planned",
    "included",
    "modified",
    "written",
    "loaded",
    "stored",
    "kept",
    "wanted",
    "necessary",
    "considered",
    "altered",
    "run",
    "executed",
    "imported",
    "supported",
    "sent",
    "set",
    "taken",
    "made",
    "created",
    "opened",
    "logged",
    "exposed",
    "in",
    "an",
    "the",
    "there",
];

const BE: &[&str] = &[
    "is", "are", "was", "were", "be", "been", "being", "stay", "stays", "remain", "remains",
    "gets", "get", "becomes",
];

const AUXILIARIES: &[&str] = &[
    "is", "are", "was", "were", "be", "been", "has", "have", "had", "do", "does", "did", "will",
    "would", "can", "could", "may", "might", "must", "shall", "should", "cannot", "stays", "stay",
    "remains", "remain",
];

/// What plans do, as verbs without an ending.
const VERBS: &[&str] = &[
    "accept",
    "add",
    "allow",
    "answer",
    "append",
    "apply",
    "ask",
    "become",
    "begin",
    "borrow",
    "break",
    "bring",
    "build",
    "bypass",
    "call",
    "carry",
    "change",
    "check",
    "choose",
    "clean",
    "clear",
    "close",
    "come",
    "compare",
    "compute",
    "contain",
    "convert",
    "copy",
    "count",
    "create",
    "cut",
    "decide",
    "defer",
    "define",
    "delete",
    "deploy",
    "disable",
    "drop",
    "edit",
    "enable",
    "encrypt",
    "end",
    "expose",
    "extend",
    "fail",
    "fetch",
    "fill",
    "find",
    "fix",
    "format",
    "free",
    "generate",
    "get",
    "give",
    "go",
    "guard",
    "handle",
    "hold",
    "import",
    "include",
    "increase",
    "insert",
    "install",
    "introduce",
    "keep",
    "know",
    "leave",
    "let",
    "link",
    "list",
    "load",
    "lock",
    "log",
    "look",
    "lose",
    "make",
    "map",
    "mark",
    "measure",
    "merge",
    "migrate",
    "mock",
    "move",
    "need",
    "offer",
    "open",
    "overwrite",
    "parse",
    "pass",
    "patch",
    "pin",
    "print",
    "process",
    "provide",
    "publish",
    "pull",
    "push",
    "put",
    "raise",
    "read",
    "record",
    "reduce",
    "refactor",
    "rename",
    "render",
    "report",
    "rest",
    "retry",
    "return",
    "rewrite",
    "rotate",
    "run",
    "save",
    "say",
    "see",
    "send",
    "serve",
    "set",
    "show",
    "sign",
    "skip",
    "split",
    "start",
    "stop",
    "store",
    "stream",
    "switch",
    "take",
    "talk",
    "tell",
    "throw",
    "touch",
    "train",
    "treat",
    "truncate",
    "try",
    "turn",
    "update",
    "upgrade",
    "use",
    "validate",
    "verify",
    "wait",
    "walk",
    "want",
    "wrap",
    "write",
];

const DETERMINERS: &[&str] = &[
    "the", "a", "an", "this", "these", "those", "our", "its", "their", "each", "every", "we", "it",
    "they", "you", "one", "all", "some",
];

/// What a phrase goes on after, so that what follows belongs to it.
const PREPOSITIONS: &[&str] = &[
    "of", "in", "on", "at", "to", "for", "from", "with", "by", "about", "into", "over", "under",
    "through", "between", "before", "after", "against", "as", "and", "or", "nor", "than", "like",
    "without", "within", "behind", "beside", "per", "via", "is", "are", "be", "not", "except",
    "do", "does", "inside", "outside", "across",
];

/// Words with which a new statement begins.
const CLAUSES: &[&str] = &[
    "but",
    "however",
    "then",
    "because",
    "since",
    "so",
    "while",
    "whereas",
    "although",
    "though",
    "when",
    "whenever",
    "where",
    "if",
    "unless",
    "until",
    "yet",
    "therefore",
    "hence",
    "otherwise",
];

/// What follows the object of a denial and is no part of it: "replace the table with a view".
pub(super) const END_OF_OBJECT: &[&str] =
    &["with", "by", "through", "using", "via", "which", "who", "favour", "favor", "to", "now"];

/// The denial that begins at a place of a clause.
pub(super) fn denial_at(clause: &[Word], at: usize) -> Option<Cue> {
    let word = clause.get(at).filter(|word| !word.is_name)?;
    if let Some(words) = longest(NEITHER, clause, at) {
        return Some(Cue { words, reach: None });
    }
    if let Some(words) = longest(OBJECT, clause, at) {
        let fronts = at == 0 && matches!(word.text.as_str(), "instead" | "rather" | "in");
        let reach = if fronts { Reach::Front } else { Reach::Object };
        return Some(Cue { words, reach: Some(reach) });
    }
    if let Some(words) = longest(CLAUSE, clause, at) {
        return Some(Cue { words, reach: Some(Reach::Clause) });
    }
    if word.text.ends_with("n't") {
        return Some(Cue { words: 1, reach: Some(Reach::Clause) });
    }
    // Said of a thing ("is removed", "the removed table"), it is no deed that has an object.
    let before = at.checked_sub(1).and_then(|before| clause.get(before));
    let passive = word.text.ends_with("ed") || word.text == "forbidden";
    let of_a_thing = before.is_some_and(|it| BE.contains(&it.text.as_str()));
    let is_verb = OBJECT_VERBS.iter().any(|verb| is_form(&word.text, verb));
    (is_verb && !(passive && of_a_thing)).then_some(Cue { words: 1, reach: Some(Reach::Object) })
}

/// Whether what stands before a place of a clause is denied there.
pub(super) fn left_denial_at(clause: &[Word], at: usize) -> bool {
    let word_at = |place: usize| clause.get(place).filter(|it| !it.is_name).map(|it| &*it.text);
    let Some(word) = word_at(at) else { return false };
    // A new statement that says it again begins at its verb, so that it counts once.
    if BE.contains(&word) {
        let next = word_at(at + 1).unwrap_or_default();
        if REFUSED.contains(&next) {
            return true;
        }
        let then = if next == "not" {
            word_at(at + 2)
        } else if next == "no" && word_at(at + 2) == Some("longer") {
            word_at(at + 3)
        } else {
            None
        };
        return then.is_some_and(|then| DONE.contains(&then))
            || longest(LEFT, clause, at).is_some()
            || longest(LEFT, clause, at + 1).is_some()
            || (next == "the" && word_at(at + 2) == Some("same"));
    }
    if matches!(word, "isn't" | "aren't" | "wasn't" | "weren't") {
        return word_at(at + 1).is_some_and(|then| DONE.contains(&then));
    }
    let before = at.checked_sub(1).and_then(word_at).unwrap_or_default();
    // "Left untouched" and "stays unchanged" were seen at their verb.
    let seen = BE.contains(&before) || before == "left";
    let verb_seen = word == "left" && BE.contains(&before);
    if longest(LEFT, clause, at).is_some() {
        let by_itself = matches!(word, "untouched" | "unchanged" | "unaffected" | "as" | "out");
        return !(verb_seen || seen && by_itself && passes(clause, at));
    }
    // "Leaves the amounts alone", "keeps dynamic code out".
    let left = |verbs: &[&str]| {
        clause[..at].iter().rev().take(6).any(|it| !it.is_name && verbs.contains(&&*it.text))
    };
    let ends = clause.get(at + 1).is_none_or(|next| next.comma || !is_determiner(&next.text));
    (word == "alone" && left(&["leave", "leaves", "leaving"]))
        || (word == "out"
            && ends
            && left(&["keep", "keeps", "keeping", "leave", "leaves", "leaving", "take", "takes"]))
}

/// Whether the verb before a place was already seen to deny.
fn passes(clause: &[Word], at: usize) -> bool {
    at.checked_sub(1).is_some_and(|before| left_denial_at(clause, before))
        || at.checked_sub(2).is_some_and(|before| left_denial_at(clause, before))
}

/// Whether a clause is a heading over what is not to be done.
pub(super) fn heads_exclusion(clause: &[Word]) -> bool {
    const HEADS: &[&[&str]] = &[
        &["out", "of", "scope"],
        &["outside", "the", "scope"],
        &["not", "part", "of"],
        &["not", "in", "scope"],
        &["not", "included"],
        &["not", "planned"],
        &["not", "touched"],
        &["excluded"],
        &["non", "goals"],
        &["non", "goal"],
        &["left", "out"],
        &["left", "alone"],
        &["unchanged"],
        &["untouched"],
    ];
    let begins = |at: usize, head: &[&str]| {
        head.len() <= clause.len() - at
            && clause[at..].iter().zip(head).all(|(word, head)| word.text == *head)
    };
    clause.len() <= 6 && (0..clause.len()).any(|at| HEADS.iter().any(|head| begins(at, head)))
}

/// Whether a word of a clause is a verb that a subject does.
pub(super) fn is_verb(clause: &[Word], at: usize) -> bool {
    let Some(word) = clause.get(at).filter(|word| !word.is_name) else { return false };
    if AUXILIARIES.contains(&word.text.as_str()) || word.text.ends_with("n't") {
        return true;
    }
    let before = at.checked_sub(1).and_then(|before| clause.get(before)).map(|it| &*it.text);
    // After these it is a thing: "the change", "no use of", "by default".
    let is_thing = before.is_some_and(|before| {
        let joins = matches!(
            before,
            "and"
                | "or"
                | "nor"
                | "to"
                | "not"
                | "we"
                | "it"
                | "they"
                | "you"
                | "one"
                | "do"
                | "does"
        );
        !joins
            && (is_determiner(before)
                || PREPOSITIONS.contains(&before)
                || matches!(before, "no" | "any" | "without" | "new" | "same" | "other"))
    });
    let follows_of = clause.get(at + 1).is_some_and(|next| next.text == "of");
    !is_thing && !follows_of && VERBS.iter().any(|verb| is_finite(&word.text, verb))
}

pub(super) fn is_determiner(word: &str) -> bool {
    DETERMINERS.contains(&word)
}

pub(super) fn starts_phrase(word: &str) -> bool {
    PREPOSITIONS.contains(&word) || is_determiner(word)
}

pub(super) fn starts_clause(word: &str) -> bool {
    CLAUSES.contains(&word)
}

pub(super) fn joins_phrases(word: &str) -> bool {
    matches!(word, "and" | "or" | "nor")
}

/// How long the longest of some cues is that begins at a place.
fn longest(cues: &[&[&str]], clause: &[Word], at: usize) -> Option<usize> {
    let rest = clause.get(at..)?;
    let begins = |cue: &&&[&str]| {
        rest.len() >= cue.len()
            && rest.iter().zip(**cue).all(|(word, cue)| !word.is_name && word.text == *cue)
    };
    cues.iter().filter(begins).map(|cue| cue.len()).max()
}

/// Whether a word is a verb as it is said of now: "use", "uses", "passes", "tries".
fn is_finite(word: &str, verb: &str) -> bool {
    let Some(ending) = word.strip_prefix(verb) else {
        return word.strip_suffix("ies").is_some_and(|one| verb.strip_suffix('y') == Some(one));
    };
    matches!(ending, "" | "s" | "es")
}

/// Whether a word is any form of a verb.
fn is_form(word: &str, verb: &str) -> bool {
    let short = verb.strip_suffix('e').unwrap_or(verb);
    let Some(ending) = word.strip_prefix(short) else { return false };
    let doubled = verb.chars().last().map(|last| format!("{last}ing"));
    matches!(ending, "s" | "es" | "e" | "ed" | "ing" | "den")
        || word == verb
        || doubled.as_deref() == Some(ending)
        || ending == "ned"
}
