//! Rules for facts that are the same for every forge: newest checks and reviews, our own comments, and
//! accounts with write access.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use chrono::TimeDelta;
use tamma_core::forge::{
    CheckFact, CheckResult, MAX_FACTS, PullRequestFacts, ReviewFact, ReviewVerdict, ThreadFact,
};
use tamma_core::ids::{CommitId, Digest};
use tamma_core::pull_request::NOT_STARTED_ID;
use tamma_core::time::Timestamp;

use super::api::now;

/// Name of our own check, which is no fact about the pull request.
pub(super) const OWN_CHECK: &str = "tamma";

/// Commit of a review about which the forge does not tell it. It is the head of no change, so an approval
/// of it does not count.
pub(super) const UNKNOWN_COMMIT: CommitId = CommitId::Sha1([0; 20]);

/// Time for which an account's access and the required checks of a branch are remembered.
const REMEMBERED: TimeDelta = TimeDelta::minutes(10);

/// Most values that are remembered.
const MAX_REMEMBERED: usize = 10_000;

/// Longest text of a comment that is passed on, in characters.
const MAX_TEXT: usize = 20_000;

/// Longest name or ID in facts, in characters.
const MAX_NAME: usize = 200;

/// One attempt of a check.
#[derive(Debug, Clone)]
pub(super) struct CheckAttempt {
    pub(super) name: String,
    /// Origin, such as the event that started a workflow. Attempts of one origin replace each other.
    pub(super) origin: String,
    /// Order of attempts, oldest first.
    pub(super) order: (String, u64),
    pub(super) id: String,
    pub(super) required: bool,
    pub(super) result: CheckResult,
}

/// Returns the newest attempt of each check, without our own. If checks of several origins have one
/// name, the worst counts. Required checks that have not started are pending. Names in `required` can
/// contain `*`. The second value is `true` if there are too many.
pub(super) fn newest_checks(
    attempts: Vec<CheckAttempt>,
    required: &[String],
) -> (Vec<CheckFact>, bool) {
    let mut newest: BTreeMap<(String, String), CheckAttempt> = BTreeMap::new();
    for attempt in attempts {
        let key = (attempt.name.clone(), attempt.origin.clone());
        match newest.get(&key) {
            Some(known) if known.order > attempt.order => {}
            _ => {
                newest.insert(key, attempt);
            }
        }
    }
    let mut checks: BTreeMap<String, CheckFact> = BTreeMap::new();
    for attempt in newest.into_values().filter(|it| it.name != OWN_CHECK) {
        let is_listed = required.iter().any(|pattern| matches_pattern(pattern, &attempt.name));
        let mut fact = CheckFact {
            name: clip(&attempt.name),
            id: attempt.id,
            required: attempt.required || is_listed,
            result: attempt.result,
        };
        if let Some(other) = checks.get(&fact.name) {
            fact.required |= other.required;
            if severity(other.result) > severity(fact.result) {
                (fact.id, fact.result) = (other.id.clone(), other.result);
            }
        }
        checks.insert(fact.name.clone(), fact);
    }
    for pattern in required.iter().filter(|it| *it != OWN_CHECK) {
        if !checks.keys().any(|name| matches_pattern(pattern, name)) {
            let fact = CheckFact {
                name: clip(pattern),
                id: format!("{NOT_STARTED_ID}{}", clip(pattern)),
                required: true,
                result: CheckResult::Pending,
            };
            checks.insert(fact.name.clone(), fact);
        }
    }
    let has_more = checks.len() > MAX_FACTS;
    (checks.into_values().take(MAX_FACTS).collect(), has_more)
}

fn severity(result: CheckResult) -> u8 {
    match result {
        CheckResult::Passed => 0,
        CheckResult::Pending => 1,
        CheckResult::Failed => 2,
    }
}

/// Returns `true` if a name matches a pattern, in which `*` stands for any text.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(start) => rest = rest.get(start + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    true
}

/// Review as the forge lists it.
#[derive(Debug, Clone)]
pub(super) struct ListedReview {
    pub(super) fact: ReviewFact,
    /// No longer counts.
    pub(super) dismissed: bool,
}

/// Returns the review of each reviewer that counts: the newest verdict, or a comment if there is none.
/// Reviews are given oldest first.
pub(super) fn newest_reviews(reviews: Vec<ListedReview>) -> Vec<ReviewFact> {
    let mut newest: BTreeMap<String, ReviewFact> = BTreeMap::new();
    for ListedReview { mut fact, dismissed } in reviews {
        if dismissed {
            fact.verdict = ReviewVerdict::Commented;
        }
        let is_comment = fact.verdict == ReviewVerdict::Commented && !dismissed;
        match newest.get(&fact.by) {
            // A comment does not take back a verdict.
            Some(known) if is_comment && known.verdict != ReviewVerdict::Commented => {}
            _ => {
                newest.insert(fact.by.clone(), fact);
            }
        }
    }
    newest.into_values().take(MAX_FACTS).collect()
}

/// Comment of a thread.
#[derive(Debug, Clone)]
pub(super) struct ThreadNote {
    pub(super) id: String,
    pub(super) by: String,
    pub(super) bot: bool,
    pub(super) text: String,
}

/// Returns the comments of a thread that count: ours, and those of people who can push, if there are
/// any. Anybody can write in a thread, which must not hide what one of these people said before.
pub(super) fn counting_notes(
    mut notes: Vec<ThreadNote>,
    account: &str,
    writers: &BTreeSet<String>,
) -> Vec<ThreadNote> {
    let is_own = |it: &ThreadNote| is_ours(&it.text, &it.by, account);
    let counts = |it: &ThreadNote| !it.bot && writers.contains(&it.by);
    if notes.iter().any(|it| counts(it) && !is_own(it)) {
        notes.retain(|it| counts(it) || is_own(it));
    }
    notes
}

/// Returns the facts of a thread, or `None` if everything in it is ours. Comments are given oldest
/// first. The access of the author is filled in later.
pub(super) fn thread_fact(
    id: String,
    notes: &[ThreadNote],
    account: &str,
    resolved: bool,
    replied: bool,
) -> Option<ThreadFact> {
    let last = notes.iter().rev().find(|it| !is_ours(&it.text, &it.by, account))?;
    let is_answered = notes.last().is_some_and(|it| is_ours(&it.text, &it.by, account));
    Some(ThreadFact {
        id,
        last_comment: last.id.clone(),
        by: clip(&last.by),
        can_write: false,
        bot: last.bot,
        resolved,
        answered: is_answered || replied,
    })
}

/// Returns `true` for comments that we wrote: by our account, with a marker as the last line. Both are
/// needed, because people can copy a marker, and can share their account with us.
pub(super) fn is_ours(text: &str, by: &str, account: &str) -> bool {
    let last = text.trim_end().lines().next_back().unwrap_or_default().trim();
    by.eq_ignore_ascii_case(account) && last.starts_with("<!-- tamma:") && last.ends_with("-->")
}

/// Returns the last line of a comment with this key, which may be complete already.
pub(super) fn marker_line(marker: &str) -> String {
    if marker.starts_with("<!--") { marker.to_owned() } else { format!("<!-- tamma:{marker} -->") }
}

/// Returns `true` if a comment ends with this marker line.
pub(super) fn has_marker(text: &str, line: &str) -> bool {
    text.trim_end().ends_with(line)
}

/// Returns the body of a comment with its marker. A reply to a comment that cannot have a thread names
/// it, so that it counts as answered.
pub(super) fn marked_body(body: &str, line: &str, reply_to: Option<&str>) -> String {
    let body = body.trim_end();
    let body = body.strip_suffix(line).unwrap_or(body).trim_end();
    match reply_to {
        Some(thread) => format!("{body}\n\n{}\n{line}", reply_line(thread)),
        None => format!("{body}\n\n{line}"),
    }
}

/// Returns the line that names the comment which a comment replies to.
pub(super) fn reply_line(thread: &str) -> String {
    format!("<!-- tamma-reply:{thread} -->")
}

/// Returns the title of a change, for forges that know drafts by the start of their titles.
pub(super) fn draft_title(start: &str, title: &str, draft: bool) -> String {
    let bare = title.strip_prefix(start).unwrap_or(title);
    if draft { format!("{start}{bare}") } else { bare.to_owned() }
}

/// Groups comments by the number at the end of their issue's URL, in their order. Comments that are not
/// wanted, or whose URL has no number, are left out.
pub(super) fn group_by_issue<C>(
    comments: Vec<C>,
    issue_url: impl Fn(&C) -> &str,
    is_wanted: impl Fn(&C) -> bool,
) -> BTreeMap<u64, Vec<C>> {
    let mut by_issue: BTreeMap<u64, Vec<C>> = BTreeMap::new();
    for comment in comments.into_iter().filter(is_wanted) {
        let number = issue_url(&comment).rsplit('/').next().and_then(|it| it.parse().ok());
        if let Some(number) = number {
            by_issue.entry(number).or_default().push(comment);
        }
    }
    by_issue
}

/// Returns a validator for facts: a hash of them.
pub(super) fn fingerprint(facts: &PullRequestFacts) -> Option<String> {
    serde_json::to_vec(facts).ok().map(|json| Digest::of(&json).to_string())
}

/// Shortens a name or an ID, and removes control characters.
pub(super) fn clip(text: &str) -> String {
    text.chars().filter(|it| !it.is_control()).take(MAX_NAME).collect()
}

/// Shortens the text of a comment.
pub(super) fn clip_text(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

/// Values that are remembered for ten minutes. Clones share them.
#[derive(Debug)]
pub(super) struct Remembered<V> {
    values: Arc<Mutex<BTreeMap<String, (V, Timestamp)>>>,
}

impl<V> Clone for Remembered<V> {
    fn clone(&self) -> Self {
        Self { values: Arc::clone(&self.values) }
    }
}

impl<V> Default for Remembered<V> {
    fn default() -> Self {
        Self { values: Arc::new(Mutex::new(BTreeMap::new())) }
    }
}

impl<V: Clone> Remembered<V> {
    /// Returns a value that is not too old.
    pub(super) fn get(&self, key: &str) -> Option<V> {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let (value, at) = values.get(key)?;
        (now() - *at < REMEMBERED).then(|| value.clone())
    }

    /// Remembers a value.
    pub(super) fn insert(&self, key: &str, value: V) {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        if values.len() >= MAX_REMEMBERED {
            values.clear();
        }
        values.insert(key.to_owned(), (value, now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(name: &str, origin: &str, order: u64, result: CheckResult) -> CheckAttempt {
        CheckAttempt {
            name: name.to_owned(),
            origin: origin.to_owned(),
            order: (String::new(), order),
            id: order.to_string(),
            required: false,
            result,
        }
    }

    #[test]
    fn a_title_starts_like_a_draft_only_if_it_is_one() {
        assert_eq!(draft_title("WIP: ", "Greet Cy", true), "WIP: Greet Cy");
        assert_eq!(draft_title("WIP: ", "WIP: Greet Cy", true), "WIP: Greet Cy");
        assert_eq!(draft_title("WIP: ", "WIP: Greet Cy", false), "Greet Cy");
        assert_eq!(draft_title("Draft: ", "WIP: Greet Cy", false), "WIP: Greet Cy");
    }

    #[test]
    fn comments_are_grouped_by_the_number_of_their_issue() {
        let comments = vec![("/issues/7", "a"), ("/issues/x", "b"), ("/issues/7", "c"), ("", "d")];
        let grouped = group_by_issue(comments.clone(), |it| it.0, |it| it.1 != "a");
        assert_eq!(grouped, BTreeMap::from([(7, vec![("/issues/7", "c")])]));
        let grouped = group_by_issue(comments, |it| it.0, |_| true);
        assert_eq!(grouped[&7].len(), 2);
    }

    #[test]
    fn newest_attempt_counts_and_the_worst_of_several_origins() {
        use CheckResult::{Failed, Passed, Pending};
        let attempts = vec![
            attempt("build", "push", 3, Passed),
            attempt("build", "push", 1, Failed),
            attempt("build", "pull_request", 2, Failed),
            attempt("lint", "push", 4, Failed),
            attempt("lint", "push", 5, Passed),
            attempt(OWN_CHECK, "", 6, Failed),
        ];
        let required = ["lint".to_owned(), "e2e / *".to_owned(), OWN_CHECK.to_owned()];
        let (checks, has_more) = newest_checks(attempts, &required);
        let found: Vec<_> = checks
            .iter()
            .map(|it| (it.name.as_str(), it.id.as_str(), it.required, it.result))
            .collect();
        assert_eq!(
            found,
            [
                ("build", "2", false, Failed),
                ("e2e / *", "missing:e2e / *", true, Pending),
                ("lint", "5", true, Passed),
            ]
        );
        assert!(!has_more);
        let many = (0..101).map(|it| attempt(&it.to_string(), "", it, Passed)).collect();
        assert!(newest_checks(many, &[]).1);
    }

    #[test]
    fn patterns_match_like_those_of_gitea() {
        for (pattern, name, matches) in [
            ("ci", "ci", true),
            ("ci", "ci2", false),
            ("CI / *", "CI / build (push)", true),
            ("*build*", "CI / build (push)", true),
            ("*(push)", "CI / build (pull)", false),
            ("a*b*c", "a-c-b", false),
            ("*", "", true),
        ] {
            assert_eq!(matches_pattern(pattern, name), matches, "{pattern} {name}");
        }
    }

    #[test]
    fn comment_does_not_take_back_an_approval_but_a_dismissal_does() {
        let commit = "1".repeat(40).parse().unwrap();
        let review = |by: &str, verdict, dismissed| ListedReview {
            fact: ReviewFact { by: by.to_owned(), commit, verdict, can_write: true },
            dismissed,
        };
        let found = newest_reviews(vec![
            review("ann", ReviewVerdict::ChangesRequested, false),
            review("ann", ReviewVerdict::Approved, false),
            review("ann", ReviewVerdict::Commented, false),
            review("bob", ReviewVerdict::Approved, true),
        ]);
        let found: Vec<_> = found.iter().map(|it| (it.by.as_str(), it.verdict)).collect();
        assert_eq!(found, [("ann", ReviewVerdict::Approved), ("bob", ReviewVerdict::Commented)]);
    }

    #[test]
    fn only_marked_comments_of_our_account_are_ours() {
        let body = marked_body("Done.\n", &marker_line("t-1/a"), Some("comment:5"));
        assert_eq!(body, "Done.\n\n<!-- tamma-reply:comment:5 -->\n<!-- tamma:t-1/a -->");
        let plain = marked_body("Done.", &marker_line("<!-- tamma:t-1/a -->"), None);
        assert_eq!(marked_body(&plain, &marker_line("t-1/a"), None), plain);
        assert!(is_ours(&body, "Tamma", "tamma"));
        assert!(!is_ours(&body, "mallory", "tamma"));
        assert!(!is_ours("Done.", "tamma", "tamma"));
        assert!(!is_ours("<!-- tamma:x -->\nmore", "tamma", "tamma"));
        let note = |id: &str, by: &str, text: &str| ThreadNote {
            id: id.to_owned(),
            by: by.to_owned(),
            bot: false,
            text: text.to_owned(),
        };
        let notes = [note("1", "ann", "why?"), note("2", "tamma", &body)];
        let thread = thread_fact("t".to_owned(), &notes, "tamma", false, false).unwrap();
        assert_eq!((thread.last_comment.as_str(), thread.answered), ("1", true));
        assert_eq!(thread_fact("t".to_owned(), &notes[1..], "tamma", false, false), None);
    }

    #[test]
    fn nobody_hides_what_somebody_who_can_push_said() {
        let note = |id: &str, by: &str, bot| ThreadNote {
            id: id.to_owned(),
            by: by.to_owned(),
            bot,
            text: "why?".to_owned(),
        };
        let writers = BTreeSet::from(["ann".to_owned(), "ci".to_owned()]);
        let last = |notes: Vec<ThreadNote>| {
            let notes = counting_notes(notes, "tamma", &writers);
            thread_fact("t".to_owned(), &notes, "tamma", false, false).unwrap().last_comment
        };
        let asked = note("1", "ann", false);
        assert_eq!(last(vec![asked.clone(), note("2", "eve", false)]), "1");
        assert_eq!(last(vec![asked.clone(), note("2", "ci", true)]), "1");
        assert_eq!(last(vec![note("0", "eve", false), asked]), "1");
        assert_eq!(last(vec![note("1", "eve", false), note("2", "eve", false)]), "2");
    }
}
