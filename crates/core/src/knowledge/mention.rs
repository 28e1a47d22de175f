//! Whether a text speaks of something as what will be done, or only as what will not.
//!
//! "It does not touch payments" names payments, and a rule about payments has nothing to say to it. So
//! a text is cut into clauses, and a word counts only where its clause does not deny it.

/// Words after which what follows in a clause is denied. Two of them cancel out: what "cannot work
/// without an index" will have one.
const DENY: [&[&str]; 31] = [
    &["not"],
    &["no"],
    &["never"],
    &["without"],
    &["cannot"],
    &["can't"],
    &["don't"],
    &["doesn't"],
    &["won't"],
    &["isn't"],
    &["aren't"],
    &["avoid"],
    &["avoids"],
    &["avoiding"],
    &["except"],
    &["excluding"],
    &["forbid"],
    &["forbids"],
    &["refuse"],
    &["refuses"],
    &["remove"],
    &["removes"],
    &["removing"],
    &["replace"],
    &["replaces"],
    &["replacing"],
    &["instead", "of"],
    &["in", "place", "of"],
    &["rather", "than"],
    &["rid", "of"],
    &["out", "of", "scope"],
];

/// Words that go on with a denial, or are one by themselves.
const ALSO: [&str; 2] = ["nor", "neither"];

/// Words after which what came before in a clause is denied.
const DENIED: [&[&str]; 14] = [
    &["untouched"],
    &["unchanged"],
    &["unaffected"],
    &["stays", "as"],
    &["stay", "as"],
    &["stays", "refused"],
    &["stay", "refused"],
    &["stays", "forbidden"],
    &["out", "of", "scope"],
    &["as", "it", "is"],
    &["as", "they", "are"],
    &["left", "alone"],
    &["is", "not"],
    &["are", "not"],
];

/// How many words a denial reaches.
const REACH: usize = 8;

/// A text as clauses of words.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clauses(Vec<Vec<Word>>);

#[derive(Debug, Clone)]
struct Word {
    text: String,
    /// Where it begins in the text.
    at: usize,
}

impl Clauses {
    pub(crate) fn of(text: &str) -> Self {
        let mut clauses = vec![Vec::new()];
        let mut word: Option<Word> = None;
        let mut letters = text.char_indices().peekable();
        let close = |word: &mut Option<Word>, clauses: &mut Vec<Vec<Word>>| {
            if let Some(done) = word.take() {
                let ends = matches!(done.text.as_str(), "but" | "however" | "then");
                if ends {
                    clauses.push(Vec::new());
                } else if let Some(last) = clauses.last_mut() {
                    last.push(done);
                }
            }
        };
        while let Some((at, letter)) = letters.next() {
            let letter = if letter == '\u{2019}' { '\'' } else { letter };
            let inside =
                letter.is_alphanumeric() || letter == '_' || (letter == '\'' && word.is_some());
            if inside {
                let word = word.get_or_insert_with(|| Word { text: String::new(), at });
                word.text.extend(letter.to_lowercase());
                continue;
            }
            close(&mut word, &mut clauses);
            let space_follows = letters.peek().is_none_or(|(_, next)| next.is_whitespace());
            let ends = match letter {
                '\n' | ';' | '(' | ')' | '!' | '?' => true,
                // A dot inside a name ends nothing.
                '.' | ':' => space_follows,
                // A denial goes on over a list: "without auth, payments or orders".
                ',' => space_follows && !is_short(&text[at + 1..]),
                _ => false,
            };
            if ends {
                clauses.push(Vec::new());
            }
        }
        close(&mut word, &mut clauses);
        clauses.retain(|clause| !clause.is_empty());
        Self(clauses)
    }

    /// Whether some words in a row are named, and not denied.
    pub(crate) fn name(&self, wanted: &[String]) -> bool {
        !wanted.is_empty()
            && self.0.iter().any(|clause| {
                (0..clause.len().saturating_sub(wanted.len() - 1)).any(|start| {
                    let run = clause.get(start..start + wanted.len()).unwrap_or_default();
                    run.len() == wanted.len()
                        && run.iter().zip(wanted).all(|(word, wanted)| is_same(&word.text, wanted))
                        && !is_denied(clause, start, start + wanted.len())
                })
            })
    }

    /// Whether what is at a place of the text is denied.
    pub(crate) fn denies(&self, at: usize) -> bool {
        let clause =
            self.0.iter().rev().find(|clause| clause.first().is_some_and(|word| word.at <= at));
        clause.is_some_and(|clause| {
            let place = clause.iter().take_while(|word| word.at < at).count();
            is_denied(clause, place, place)
        })
    }
}

/// Whether what follows a comma is short enough to be one more of a list.
fn is_short(rest: &str) -> bool {
    let part = rest.split([',', '.', ';', '\n', ':']).next().unwrap_or_default();
    part.split_whitespace().count() <= 3
}

fn is_denied(clause: &[Word], start: usize, end: usize) -> bool {
    let before = clause.get(start.saturating_sub(REACH)..start).unwrap_or_default();
    let after = clause.get(end..(end + REACH).min(clause.len())).unwrap_or_default();
    let denials = (0..before.len()).filter(|at| {
        // "Not only" denies nothing.
        let only = before.get(at + 1).is_some_and(|next| next.text == "only");
        !only && DENY.iter().any(|cue| begins(&before[*at..], cue))
    });
    let denials = denials.count();
    let also = before.iter().any(|word| ALSO.contains(&word.text.as_str()));
    let denied_before = denials % 2 == 1 || (denials == 0 && also);
    let denied_after =
        (0..after.len()).any(|at| DENIED.iter().any(|cue| begins(&after[at..], cue)));
    denied_before || denied_after
}

fn begins(words: &[Word], cue: &[&str]) -> bool {
    words.len() >= cue.len() && words.iter().zip(cue).all(|(word, cue)| word.text == *cue)
}

/// Whether two words are the same, but for a plural.
fn is_same(found: &str, wanted: &str) -> bool {
    found == wanted
        || found.strip_suffix('s').is_some_and(|one| one == wanted)
        || found.strip_suffix("es").is_some_and(|one| one == wanted)
        || wanted.strip_suffix('s').is_some_and(|one| one == found)
        || (found.strip_suffix("ies").is_some_and(|one| wanted.strip_suffix('y') == Some(one)))
}
