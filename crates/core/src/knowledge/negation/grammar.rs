//! English grammar needed to find the extent of a negation.

use super::MentionWord;

/// Extent of a negation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NegationScope {
    /// Rest of the clause: "we never call it in a loop".
    Clause,
    /// Following object only: "instead of a float the table has integers".
    Object,
    /// Following object at the start of a clause, ended by a comma: "instead of a float, integers".
    Front,
}

/// Words that negate, or only seem to.
#[derive(Debug, Clone, Copy)]
pub(super) struct NegationCue {
    /// Number of words.
    pub(super) word_count: usize,
    /// Extent; `None` if the words only seem to negate.
    pub(super) scope: Option<NegationScope>,
}

/// Longest list item between commas, in words. Longer ones are statements.
pub(super) const MAX_LIST_ITEM_WORDS: usize = 4;

/// Phrases that only seem to negate: limits, emphasis, and statements of fact.
const FALSE_NEGATIONS: &[&[&str]] = &[
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

/// Phrases that negate the rest of their clause.
const CLAUSE_NEGATIONS: &[&[&str]] = &[
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

/// Phrases that negate the following object.
const OBJECT_NEGATIONS: &[&[&str]] = &[
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

/// Verbs that negate their object, in all forms.
const NEGATING_VERBS: &[&str] = &[
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

/// Phrases that negate the preceding subject, on their own or after a linking verb.
const BACKWARD_NEGATIONS: &[&[&str]] = &[
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

/// States that negate their subject: "unsigned bodies stay refused".
const NEGATING_STATES: &[&str] = &[
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

/// States that negate their subject if they are negated: "eval is not used". Others, such as "is
/// not slow", do not.
const NEGATABLE_STATES: &[&str] = &[
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

const LINKING_VERBS: &[&str] = &[
    "is", "are", "was", "were", "be", "been", "being", "stay", "stays", "remain", "remains",
    "gets", "get", "becomes",
];

const AUXILIARIES: &[&str] = &[
    "is", "are", "was", "were", "be", "been", "has", "have", "had", "do", "does", "did", "will",
    "would", "can", "could", "may", "might", "must", "shall", "should", "cannot", "stays", "stay",
    "remains", "remain",
];

/// Verbs common in plans, in their base form.
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

/// Prepositions, after which a phrase continues.
const PREPOSITIONS: &[&str] = &[
    "of", "in", "on", "at", "to", "for", "from", "with", "by", "about", "into", "over", "under",
    "through", "between", "before", "after", "against", "as", "and", "or", "nor", "than", "like",
    "without", "within", "behind", "beside", "per", "via", "is", "are", "be", "not", "except",
    "do", "does", "inside", "outside", "across",
];

/// Words that start a new statement.
const CLAUSE_STARTERS: &[&str] = &[
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

/// Words that end the object of a negation: "replace the table with a view".
pub(super) const OBJECT_TERMINATORS: &[&str] =
    &["with", "by", "through", "using", "via", "which", "who", "favour", "favor", "to", "now"];

/// Returns the negation that starts at a position of a clause.
pub(super) fn negation_at(clause: &[MentionWord], at: usize) -> Option<NegationCue> {
    let word = clause.get(at).filter(|word| !word.is_identifier)?;
    if let Some(word_count) = longest_match(FALSE_NEGATIONS, clause, at) {
        return Some(NegationCue { word_count, scope: None });
    }
    if let Some(word_count) = longest_match(OBJECT_NEGATIONS, clause, at) {
        let fronts = at == 0 && matches!(word.text.as_str(), "instead" | "rather" | "in");
        let scope = if fronts { NegationScope::Front } else { NegationScope::Object };
        return Some(NegationCue { word_count, scope: Some(scope) });
    }
    if let Some(word_count) = longest_match(CLAUSE_NEGATIONS, clause, at) {
        return Some(NegationCue { word_count, scope: Some(NegationScope::Clause) });
    }
    if word.text.ends_with("n't") {
        return Some(NegationCue { word_count: 1, scope: Some(NegationScope::Clause) });
    }
    // A participle ("is removed", "the removed table") has no object.
    let before = at.checked_sub(1).and_then(|before| clause.get(before));
    let is_participle = word.text.ends_with("ed") || word.text == "forbidden";
    let follows_linking_verb =
        before.is_some_and(|word| LINKING_VERBS.contains(&word.text.as_str()));
    let is_verb = NEGATING_VERBS.iter().any(|verb| is_verb_form(&word.text, verb));
    (is_verb && !(is_participle && follows_linking_verb))
        .then_some(NegationCue { word_count: 1, scope: Some(NegationScope::Object) })
}

/// Returns the phrase at a position that negates the words before it.
pub(super) fn backward_negation_at(clause: &[MentionWord], at: usize) -> bool {
    let word_at = |position: usize| {
        clause.get(position).filter(|word| !word.is_identifier).map(|word| &*word.text)
    };
    let Some(word) = word_at(at) else { return false };
    // A repeated statement starts at its verb, so that it counts once.
    if LINKING_VERBS.contains(&word) {
        let next = word_at(at + 1).unwrap_or_default();
        if NEGATING_STATES.contains(&next) {
            return true;
        }
        let state = if next == "not" {
            word_at(at + 2)
        } else if next == "no" && word_at(at + 2) == Some("longer") {
            word_at(at + 3)
        } else {
            None
        };
        return state.is_some_and(|state| NEGATABLE_STATES.contains(&state))
            || longest_match(BACKWARD_NEGATIONS, clause, at).is_some()
            || longest_match(BACKWARD_NEGATIONS, clause, at + 1).is_some()
            || (next == "the" && word_at(at + 2) == Some("same"));
    }
    if matches!(word, "isn't" | "aren't" | "wasn't" | "weren't") {
        return word_at(at + 1).is_some_and(|state| NEGATABLE_STATES.contains(&state));
    }
    let before = at.checked_sub(1).and_then(word_at).unwrap_or_default();
    // "Left untouched" and "stays unchanged" were counted at their verb.
    let follows_verb = LINKING_VERBS.contains(&before) || before == "left";
    let verb_counted = word == "left" && LINKING_VERBS.contains(&before);
    if longest_match(BACKWARD_NEGATIONS, clause, at).is_some() {
        let by_itself = matches!(word, "untouched" | "unchanged" | "unaffected" | "as" | "out");
        return !(verb_counted
            || follows_verb && by_itself && is_negated_by_earlier_verb(clause, at));
    }
    // "Leaves the amounts alone", "keeps dynamic code out".
    let has_earlier_verb = |verbs: &[&str]| {
        clause[..at]
            .iter()
            .rev()
            .take(6)
            .any(|word| !word.is_identifier && verbs.contains(&&*word.text))
    };
    let ends_phrase =
        clause.get(at + 1).is_none_or(|next| next.follows_comma || !is_determiner(&next.text));
    (word == "alone" && has_earlier_verb(&["leave", "leaves", "leaving"]))
        || (word == "out"
            && ends_phrase
            && has_earlier_verb(&[
                "keep", "keeps", "keeping", "leave", "leaves", "leaving", "take", "takes",
            ]))
}

/// Returns true if the verb before a position has already been counted as a negation.
fn is_negated_by_earlier_verb(clause: &[MentionWord], at: usize) -> bool {
    at.checked_sub(1).is_some_and(|before| backward_negation_at(clause, before))
        || at.checked_sub(2).is_some_and(|before| backward_negation_at(clause, before))
}

/// Returns true if a clause is a heading for excluded work.
pub(super) fn is_exclusion_heading(clause: &[MentionWord]) -> bool {
    const HEADINGS: &[&[&str]] = &[
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
    let starts_at = |at: usize, heading: &[&str]| {
        heading.len() <= clause.len() - at
            && clause[at..].iter().zip(heading).all(|(word, heading)| word.text == *heading)
    };
    clause.len() <= 6
        && (0..clause.len()).any(|at| HEADINGS.iter().any(|heading| starts_at(at, heading)))
}

/// Returns true if a word is the verb of a subject.
pub(super) fn is_verb(clause: &[MentionWord], at: usize) -> bool {
    let Some(word) = clause.get(at).filter(|word| !word.is_identifier) else { return false };
    if AUXILIARIES.contains(&word.text.as_str()) || word.text.ends_with("n't") {
        return true;
    }
    let before = at.checked_sub(1).and_then(|before| clause.get(before)).map(|word| &*word.text);
    // After these words it is a noun: "the change", "no use of", "by default".
    let is_noun = before.is_some_and(|before| {
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
    !is_noun && !follows_of && VERBS.iter().any(|verb| is_present_form(&word.text, verb))
}

pub(super) fn is_determiner(word: &str) -> bool {
    DETERMINERS.contains(&word)
}

pub(super) fn starts_phrase(word: &str) -> bool {
    PREPOSITIONS.contains(&word) || is_determiner(word)
}

pub(super) fn starts_clause(word: &str) -> bool {
    CLAUSE_STARTERS.contains(&word)
}

pub(super) fn joins_phrases(word: &str) -> bool {
    matches!(word, "and" | "or" | "nor")
}

/// Returns the length of the longest phrase that starts at a position.
fn longest_match(cues: &[&[&str]], clause: &[MentionWord], at: usize) -> Option<usize> {
    let rest = clause.get(at..)?;
    let is_prefix = |cue: &&&[&str]| {
        rest.len() >= cue.len()
            && rest.iter().zip(**cue).all(|(word, cue)| !word.is_identifier && word.text == *cue)
    };
    cues.iter().filter(is_prefix).map(|cue| cue.len()).max()
}

/// Returns true if a word is a present-tense form of a verb: "use", "uses", "passes", "tries".
fn is_present_form(word: &str, verb: &str) -> bool {
    let Some(ending) = word.strip_prefix(verb) else {
        return word.strip_suffix("ies").is_some_and(|stem| verb.strip_suffix('y') == Some(stem));
    };
    matches!(ending, "" | "s" | "es")
}

/// Returns true if a word is any form of a verb.
fn is_verb_form(word: &str, verb: &str) -> bool {
    let short = verb.strip_suffix('e').unwrap_or(verb);
    let Some(ending) = word.strip_prefix(short) else { return false };
    let doubled = verb.chars().last().map(|last| format!("{last}ing"));
    matches!(ending, "s" | "es" | "e" | "ed" | "ing" | "den")
        || word == verb
        || doubled.as_deref() == Some(ending)
        || ending == "ned"
}
