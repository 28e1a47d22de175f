//! Which task or lesson is meant.
//!
//! A number or a piece of an id names one exactly. A description fits every title that shares a word
//! with it, and those win whose shared words no other title has all of and more besides. So "the
//! login test" is the one about both, and "the login one" of two is a question, not a guess.

use std::collections::BTreeSet;

use tamma_core::ids::TaskId;

use crate::order::Verb;
use crate::words::{form, stem, words};
use crate::{Context, Lesson, Subject, Unclear};

/// Words that describe no task: what joins others, what chat is made of, and what every task has.
const COMMON: &str = "
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
implementation planning review reviewed seen saw ack acknowledge reminding reminder prohibition ban
lift modify tweak adjust request turn throw decline refuse deny carry proceed reply answer respond
working worked patch stage busy crashed jobs word words wrote written really told allowed live currently move moved got";

/// What a text speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// Exactly one.
    One(TaskId),
    /// One of these.
    Many(Vec<TaskId>),
    /// Something that is not there.
    Unknown(String),
    /// "It": whatever was spoken of.
    Pronoun,
    /// Nothing in particular.
    Nothing,
}

/// Whether two stems are the same word, a usual short form of it, or one slip of the hand apart.
pub(crate) fn alike(one: &str, other: &str) -> bool {
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

/// The words of a text that can describe something, without their endings.
pub(crate) fn content(text: &str) -> BTreeSet<String> {
    words(text)
        .into_iter()
        .map(|(_, word)| word)
        .filter(|word| !COMMON.split_ascii_whitespace().any(|common| common == *word))
        .filter(|word| word.len() >= 2)
        .map(stem)
        .collect()
}

/// Tasks that are named by a number or a piece of an id: each place once, nothing where no task
/// answers to it.
pub(crate) fn named(text: &str, context: &Context) -> Vec<Option<TaskId>> {
    let numbers =
        form!(r"#\s?(?P<number>\d{1,6})\b|\b(?:task|number|no\.?|nr\.?) (?P<plain>\d{1,6})\b");
    let ids = form!(r"\b[0-9a-f]{4,}(?:-[0-9a-f]+)*\b");
    let mut named = Vec::new();
    if let Some(regex) = numbers.0 {
        for found in regex.captures_iter(text) {
            let digits = found.name("number").or_else(|| found.name("plain"));
            let number = digits.and_then(|digits| digits.as_str().parse::<u32>().ok());
            let task = context.tasks.iter().find(|task| number.is_some() && task.number == number);
            named.push(task.map(|task| task.id));
        }
    }
    if let Some(regex) = ids.0 {
        for found in regex.find_iter(text) {
            let piece = found.as_str();
            let mut fit =
                context.tasks.iter().filter(|task| has_piece(&task.id.to_string(), piece));
            match (fit.next(), fit.next()) {
                (Some(task), None) => named.push(Some(task.id)),
                // A word such as "added", or a number such as a year, is no id.
                (None, _) if looks_like_id(piece) => named.push(None),
                _ => {}
            }
        }
    }
    named.dedup();
    named
}

/// Whether an id begins or ends with a piece, as on the command line.
pub(crate) fn has_piece(id: &str, piece: &str) -> bool {
    let (id, piece) = (id.replace('-', ""), piece.replace('-', ""));
    piece.len() >= 4 && (id.starts_with(&piece) || id.ends_with(&piece) || near_end(&id, &piece))
}

/// People cut the zeros before the last digits away, and then name the beginning of what is left.
fn near_end(id: &str, piece: &str) -> bool {
    let tail = id.get(id.len().saturating_sub(12)..).unwrap_or_default().trim_start_matches('0');
    tail.starts_with(piece)
}

fn looks_like_id(piece: &str) -> bool {
    piece.len() >= 6
        && piece.bytes().any(|byte| byte.is_ascii_digit())
        && piece.bytes().any(|byte| byte.is_ascii_lowercase())
}

/// Those whose words fit best: nobody else has all the words that one of them shares, and more.
fn best<'a, T>(wanted: &BTreeSet<String>, all: &'a [T], text: impl Fn(&T) -> &str) -> Vec<&'a T> {
    let fit: Vec<_> = all
        .iter()
        .map(|one| (one, shared(wanted, &content(&text(one).to_ascii_lowercase()))))
        .filter(|(_, shared)| !shared.is_empty())
        .collect();
    let beaten = |mine: &BTreeSet<String>| {
        fit.iter().any(|(_, other)| mine.is_subset(other) && mine.len() < other.len())
    };
    fit.iter().filter(|(_, shared)| !beaten(shared)).map(|(one, _)| *one).collect()
}

/// What a text speaks of. Of several that fit a description, only those are meant to which it can
/// be done, if there are any.
pub(crate) fn find(text: &str, context: &Context, fits: impl Fn(&Subject) -> bool) -> Found {
    match &*named(text, context) {
        [] => {}
        [Some(task)] => return Found::One(*task),
        [None] => return Found::Unknown(text.trim().to_owned()),
        several => return Found::Many(several.iter().copied().flatten().collect()),
    }
    let wanted = content(text);
    let mut tasks = best(&wanted, &context.tasks, |task| &task.title);
    if tasks.iter().any(|task| fits(task)) {
        tasks.retain(|task| fits(task));
    }
    match &*tasks {
        [task] => Found::One(task.id),
        [] if form!(r"\b(?:it|that|this|them)\b").is(text) => Found::Pronoun,
        [] if wanted.is_empty() => Found::Nothing,
        [] => Found::Unknown(text.trim().to_owned()),
        several => Found::Many(several.iter().map(|task| task.id).collect()),
    }
}

/// Whether a text is a task's name or description and nothing else.
pub(crate) fn is_bare(text: &str, context: &Context, verb: Verb) -> bool {
    const AROUND: [&str; 20] = [
        "the", "that", "this", "it", "task", "one", "plan", "change", "fix", "patch", "bug", "of",
        "for", "on", "about", "a", "an", "to", "with", "in",
    ];
    let Found::One(task) = find(text, context, |task| verb.fits(task)) else { return false };
    let Some(task) = context.task(task) else { return false };
    let title = content(&task.title.to_ascii_lowercase());
    let named = !named(text, context).is_empty();
    words(text).into_iter().all(|(_, word)| {
        AROUND.contains(&word)
            || title.iter().any(|other| alike(other, &stem(word)))
            || (named && word.bytes().any(|byte| byte.is_ascii_digit()))
    })
}

/// Which lesson is meant, among those that can be decided on in this way.
pub(crate) fn lesson<'a>(
    text: &str,
    context: &'a Context,
    fits: impl Fn(&Lesson) -> bool,
) -> Result<&'a Lesson, Unclear> {
    let pieces = form!(r"\b[0-9a-f]{4,}(?:-[0-9a-f]+)*\b");
    let piece = pieces.find(text).and_then(|at| text.get(at));
    let by_id = context
        .lessons
        .iter()
        .find(|lesson| piece.is_some_and(|piece| has_piece(&lesson.id.to_string(), piece)));
    if let Some(lesson) = by_id {
        return Ok(lesson);
    }
    let wanted = content(text);
    let mut lessons = best(&wanted, &context.lessons, |lesson| &lesson.text);
    if lessons.is_empty() && wanted.is_empty() {
        lessons = context.lessons.iter().collect();
    }
    lessons.retain(|lesson| fits(lesson));
    match &*lessons {
        [lesson] => Ok(lesson),
        [] => Err(Unclear::UnknownTask { said: text.trim().to_owned() }),
        several => Err(Unclear::Which {
            tasks: Vec::new(),
            lessons: several.iter().map(|lesson| lesson.id).collect(),
        }),
    }
}

/// What one of these words has in common with the words of a text.
fn shared(words: &BTreeSet<String>, text: &BTreeSet<String>) -> BTreeSet<String> {
    words.iter().filter(|word| text.iter().any(|other| alike(word, other))).cloned().collect()
}
