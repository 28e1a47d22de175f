//! Resolution of references to tasks and lessons.
//!
//! A quoted title, a number or part of an ID names exactly one. A description matches every title that
//! shares a word with it; a title loses if another one shares all its words and more. So "the login
//! test" is the task about both, and "the login one" with two candidates leads to a question.

use std::collections::BTreeSet;

use tamma_core::ids::TaskId;

use crate::command_parser::Verb;
use crate::message_text::{
    comparable_title, marked_task, matches_id_fragment, phrase, stem, tokenize,
};
use crate::{ChatContext, ChatLesson, ChatTask, Clarification};

/// Words that describe no task: function words, chat vocabulary, and words common to all tasks.
const STOP_WORDS: &str = "
a an the and or but so if of to for from with without on in at by about as than then is are was were
be been being am do does did done doing has have had having will would can could should shall may
might must i me my mine you your yours we us our it its it's they them their he she that this these
those there here what which who whom whose when where why how what's whats who's hows how's where's
not no nor never don't dont doesn't isn't can't won't nothing yes ok okay please pls plz thanks thank
hi hello hey now just again still yet already also too very really quite more most less some any all
every each both other another same one ones thing things stuff task tasks plan plans planned change
changes fix fixes bug issue ticket work job step one's item alert block question agent agents council
approve approved approving approval aprove reject rejected cancel cancelled canceled pause paused
resume retry retried retrying skip skipped abandon override accept merge continue roll back rollback
go going gone ahead on off up down over out through into until till unless once before after while
because since let lets let's get got give gave take took make made put set see show tell told say says
said know look looks like want wants need needs needed think mean means help use used using happen
happens happened happening update updates status state progress finished finish complete completed
running run runs stuck fail fails failed failing failure failures error wrong broken waiting wait
waits doing stand stands far long much many money cost costs spend spent budget dollars dollar usd
tokens token expensive left today yesterday tomorrow week month monday tuesday wednesday thursday
friday morning moment atm time first second last next new old good great fine nice right sure quick
quickly full whole high low medium risk risky safe log logs diff history report reports events event
output code lesson lessons learning learnings learned learn rule rules knowledge entry hold step part
someone somebody anyone anybody nobody anything everything something ever even only own point try go
shot chance fully for_now hmm well maybe perhaps tamma open opened read print latest currently live
whats that's thats i'm im i've ive i'd id you're we're were he's blocked stop stopped end kill
drop abort scrap freeze unfreeze unpause suspend start started starting attempts attempt model files
file options option include touch explain ask asked asks wants hurry come came keep keeps keeping its
why's ready mention mentions pending green light thumbs veto lgtm ship send rerun redo restart
implementation planning review reviewed seen saw ack acknowledge reminding prohibition ban
lift modify tweak adjust request turn throw decline refuse deny carry proceed reply answer respond
working worked patch stage busy crashed jobs word words wrote written really told allowed live currently move moved got u ur rn b4 teh smth sth btw lol ty thx longer
changed paste pasted post share lines phase expect";

/// Words of some commands that can also be in a title.
const WEAK_WORDS: [&str; 1] = ["remind"];

/// Description of a task that is missing; the quote replaces it in the question to the person.
const MISSING: &str = "\u{1a}";

/// Returns the question about a name that no task has.
pub(crate) fn missing_task() -> Clarification {
    Clarification::UnknownTask { description: MISSING.to_owned() }
}

/// Task that a text refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TaskReference {
    /// Exactly one task.
    One(TaskId),
    /// One of several tasks.
    Many(Vec<TaskId>),
    /// Description that matches no task.
    Unknown(String),
    /// Quoted title or number that no task has. It never stands for the task mentioned last.
    Missing,
    /// "It": the task mentioned last.
    Pronoun,
    /// No reference.
    Nothing,
}

/// Returns true if two stems are the same word, a common short form of it, or one typo apart.
pub(crate) fn is_similar_word(one: &str, other: &str) -> bool {
    const SHORT: [(&str, &str); 3] =
        [("doc", "document"), ("dep", "dependency"), ("docu", "document")];
    one == other
        || SHORT.iter().any(|pair| *pair == (one, other) || *pair == (other, one))
        || (one.len() >= 5
            && other.len() >= 5
            && one.as_bytes().first() == other.as_bytes().first()
            && !one.bytes().chain(other.bytes()).any(|byte| byte.is_ascii_digit())
            && strsim::damerau_levenshtein(one, other) == 1)
}

/// Returns the stems of the words that can describe something.
pub(crate) fn content_words(text: &str) -> BTreeSet<String> {
    tokenize(text)
        .into_iter()
        .map(|(_, word)| word)
        .filter(|word| !STOP_WORDS.split_ascii_whitespace().any(|common| common == *word))
        .filter(|word| word.len() >= 2)
        .map(stem)
        .collect()
}

/// Returns the stems of the words of a title, and of two neighbours as one word: "time zone" is also
/// "timezone".
fn title_words(title: &str) -> BTreeSet<String> {
    let title = title.to_ascii_lowercase();
    let mut words = content_words(&title);
    let tokens = tokenize(&title);
    for (first, second) in tokens.iter().zip(tokens.iter().skip(1)) {
        words.insert(stem(&format!("{}{}", first.1, second.1)));
    }
    words
}

/// Returns the tasks that are named by a quoted title, a number or part of an ID, one per occurrence;
/// `None` for one that no task has.
pub(crate) fn named_tasks(text: &str, context: &ChatContext) -> Vec<Option<TaskId>> {
    let numbers = phrase!(
        r"#\s?(?P<number>\d{1,6})\b|\b(?:task|number|no\.?|nr\.?) (?P<plain>\d{1,6})\b|^\s*(?P<alone>\d{1,4})(?:,? (?:please|pls|plz|now|again|for now|thx|thanks))*\s*$|\b(?:status|state|update|news|logs?|diff|plan|history|report|costs?)(?: of| for| on)? (?P<part>\d{1,4})\W*$|\bhow['’]?s (?P<doing>\d{1,4})\b"
    );
    let ids = phrase!(r"\b[0-9a-f]{4,}(?:-[0-9a-f]+)*\b");
    let mut named = Vec::new();
    for quoted in text.chars().filter_map(marked_task) {
        let Some(task) = context.tasks.get(quoted.index) else { continue };
        if !quoted.is_title {
            named.push(Some(task.id));
            continue;
        }
        // A title that several tasks have names all of them.
        let title = comparable_title(&task.title);
        let same = context.tasks.iter().filter(|task| comparable_title(&task.title) == title);
        named.extend(same.map(|task| Some(task.id)));
    }
    if let Some(regex) = numbers.0 {
        for matched in regex.captures_iter(text) {
            let names = ["number", "plain", "alone", "part", "doing"];
            let digits = names.into_iter().find_map(|name| matched.name(name));
            let number = digits.and_then(|digits| digits.as_str().parse::<u32>().ok());
            let task = context.tasks.iter().find(|task| number.is_some() && task.number == number);
            named.push(task.map(|task| task.id));
        }
    }
    if let Some(regex) = ids.0 {
        for matched in regex.find_iter(text) {
            let fragment = matched.as_str();
            let mut matches = context
                .tasks
                .iter()
                .filter(|task| matches_id_fragment(&task.id.to_string(), fragment));
            match (matches.next(), matches.next()) {
                (Some(task), None) => named.push(Some(task.id)),
                // A word such as "added", or a number such as a year, is not an ID.
                (None, _) if looks_like_id(fragment) => named.push(None),
                _ => {}
            }
        }
    }
    named.dedup();
    named
}

fn looks_like_id(fragment: &str) -> bool {
    fragment.len() >= 6
        && fragment.bytes().any(|byte| byte.is_ascii_digit())
        && fragment.bytes().any(|byte| byte.is_ascii_lowercase())
}

/// Returns the best matches: no other item shares all of their words and more.
fn best_matches<'a, T>(
    words: &BTreeSet<String>,
    items: &'a [T],
    text: impl Fn(&T) -> &str,
) -> Vec<&'a T> {
    let matches: Vec<_> = items
        .iter()
        .map(|item| (item, shared_words(words, &title_words(text(item)))))
        .filter(|(_, shared)| !shared.is_empty())
        .collect();
    let is_beaten = |shared: &BTreeSet<String>| {
        matches.iter().any(|(_, other)| shared.is_subset(other) && shared.len() < other.len())
    };
    matches.iter().filter(|(_, shared)| !is_beaten(shared)).map(|(item, _)| *item).collect()
}

/// Returns the task that a text refers to. If several match a description, those that
/// `is_applicable` accepts win.
pub(crate) fn find_task(
    text: &str,
    context: &ChatContext,
    is_applicable: impl Fn(&ChatTask) -> bool,
) -> TaskReference {
    match &*named_tasks(text, context) {
        [] => {}
        [Some(task)] => return TaskReference::One(*task),
        [None] if names_missing_number(text) => return TaskReference::Missing,
        [None] => return TaskReference::Unknown(text.trim().to_owned()),
        several => return TaskReference::Many(several.iter().copied().flatten().collect()),
    }
    if names_unknown_title(text) {
        return TaskReference::Missing;
    }
    let words = content_words(text);
    let mut tasks = best_matches(&words, &context.tasks, |task| &task.title);
    if tasks.iter().any(|task| is_applicable(task)) {
        tasks.retain(|task| is_applicable(task));
    }
    match &*tasks {
        [task] => TaskReference::One(task.id),
        [] if phrase!(r"\b(?:it|that|this|them)\b").is_match(text) => TaskReference::Pronoun,
        [] if words.iter().all(|word| WEAK_WORDS.contains(&&**word)) => TaskReference::Nothing,
        [] => TaskReference::Unknown(text.trim().to_owned()),
        several => TaskReference::Many(several.iter().map(|task| task.id).collect()),
    }
}

/// Returns the task that a question is about. If the whole question matches several, a part that
/// names something decides: "the export plan", "the history of the export".
pub(crate) fn find_subject(text: &str, context: &ChatContext) -> TaskReference {
    let whole = find_task(text, context, |_| true);
    let TaskReference::Many(tasks) = &whole else { return whole };
    if !named_tasks(text, context).is_empty() {
        return whole;
    }
    let parts = [
        phrase!(
            r"\b(?:the|that|this|our|my) (?P<name>[^,.?!]{1,60}?) (?:plan|task|one|fix|thing|bug|ticket|change|issue)\b"
        ),
        phrase!(r".*\b(?:of|for|on|about|with|w|in|to) (?P<name>[^,.?!]+)"),
        phrase!(r"^(?P<name>[^,.?!:]+)[,:]? "),
    ];
    let named = parts.into_iter().find_map(|part| {
        let name = text.get(part.group(text, "name")?)?;
        match find_task(name, context, |_| true) {
            TaskReference::One(task) => Some(task).filter(|task| tasks.contains(task)),
            _ => None,
        }
    });
    named.map_or(whole, TaskReference::One)
}

/// Returns true if a text starts like the title of a task, as in "rate limit, is it done?". Two words
/// that can describe a task decide.
pub(crate) fn starts_with_title(text: &str, context: &ChatContext) -> bool {
    let words = tokenize(text);
    context.tasks.iter().any(|task| {
        let title = task.title.to_ascii_lowercase();
        let title = tokenize(&title);
        let same = words.iter().zip(&title).take_while(|(word, other)| word.1 == other.1);
        same.filter(|(word, _)| !content_words(word.1).is_empty()).count() > 1
    })
}

/// Returns true if a text has no word besides common ones and those of a task's title.
pub(crate) fn is_only_name(text: &str, task: TaskId, context: &ChatContext) -> bool {
    const ASIDES: [&str; 5] = ["check", "quick", "question", "movement", "luck"];
    let Some(task) = context.task(task) else { return false };
    let title = title_words(&task.title);
    let is_id = |word: &str| word.bytes().any(|byte| byte.is_ascii_digit());
    tokenize(text).into_iter().all(|(_, word)| {
        ASIDES.contains(&word)
            || STOP_WORDS.split_ascii_whitespace().any(|common| common == word)
            || is_id(word)
            || title.iter().any(|other| is_similar_word(other, &stem(word)))
    })
}

/// Returns true if a quote that is no task's title is in the place of a name: it is all there is, or
/// follows a word such as "task" or "about".
fn names_unknown_title(text: &str) -> bool {
    phrase!(r"^\s*(?:the )?(?:task |plan (?:of|for) )?\x1a+\s*$|\b(?:task|about|of|status) (?:the )?(?:task )?\x1a")
        .is_match(text)
}

/// Returns true if the text names a task by a number, and not a pull request, a run or the like.
fn names_missing_number(text: &str) -> bool {
    let other = phrase!(
        r"\b(?:pr|prs|mr|pull requests?|requests?|issues?|events?|runs?|attempts?|iterations?|plans?|versions?|gates?|lines?) (?:(?:number|no\.?|nr\.?) )?#?\s?\d"
    );
    phrase!(r"#\s?\d|\btask \d").is_match(text) && !other.is_match(text)
}

/// Returns true if the text is a task's name or description and nothing else.
pub(crate) fn is_task_name(text: &str, context: &ChatContext, verb: Verb) -> bool {
    const FILLER_WORDS: [&str; 40] = [
        "the", "that", "this", "it", "task", "one", "plan", "change", "fix", "patch", "bug", "of",
        "for", "on", "about", "a", "an", "to", "with", "in", "thing", "ticket", "too", "also",
        "please", "pls", "well", "as", "w", "teh", "plans", "tasks", "ones", "fixes", "bugs",
        "changes", "things", "stuff", "tickets", "both",
    ];
    let TaskReference::One(task) = find_task(text, context, |task| verb.applies_to(task)) else {
        return false;
    };
    let Some(task) = context.task(task) else { return false };
    let title = title_words(&task.title);
    let has_id = !named_tasks(text, context).is_empty();
    tokenize(text).into_iter().all(|(_, word)| {
        FILLER_WORDS.contains(&word)
            || title.iter().any(|other| is_similar_word(other, &stem(word)))
            || (has_id && word.bytes().any(|byte| byte.is_ascii_digit()))
    })
}

/// Returns the lesson that a text refers to, among those that allow the decision.
pub(crate) fn find_lesson<'a>(
    text: &str,
    context: &'a ChatContext,
    is_applicable: impl Fn(&ChatLesson) -> bool,
) -> Result<&'a ChatLesson, Clarification> {
    let fragments = phrase!(r"\b[0-9a-f]{4,}(?:-[0-9a-f]+)*\b");
    let fragment = fragments.find(text).and_then(|at| text.get(at));
    let by_id = context.lessons.iter().find(|lesson| {
        fragment.is_some_and(|fragment| matches_id_fragment(&lesson.id.to_string(), fragment))
    });
    if let Some(lesson) = by_id {
        return Ok(lesson);
    }
    let words = content_words(text);
    let mut lessons = best_matches(&words, &context.lessons, |lesson| &lesson.text);
    if lessons.is_empty() && words.is_empty() {
        lessons = context.lessons.iter().collect();
    }
    lessons.retain(|lesson| is_applicable(lesson));
    match &*lessons {
        [lesson] => Ok(lesson),
        [] => Err(Clarification::UnknownTask { description: text.trim().to_owned() }),
        several => Err(Clarification::WhichTask {
            tasks: Vec::new(),
            lessons: several.iter().map(|lesson| lesson.id).collect(),
        }),
    }
}

/// Returns the words that both have in common.
fn shared_words(words: &BTreeSet<String>, text: &BTreeSet<String>) -> BTreeSet<String> {
    words
        .iter()
        .filter(|word| text.iter().any(|other| is_similar_word(word, other)))
        .cloned()
        .collect()
}
