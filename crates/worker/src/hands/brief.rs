//! Writes the brief for the next run: what failed, what of it is new, what was decided and why.

use std::fmt::Write as _;

use tamma_core::escalation::Decision;
use tamma_core::ids::Reference;
use tamma_core::task_loop::Outcome;

use super::attempts::{Attempt, compared, cut, in_short};
use super::{Activities, Told, Work};
use crate::error::Error;

/// The longest report of what failed that goes into a brief, in bytes. What a tool wrote at its
/// beginning and at its end is what helps.
const REPORT: usize = 12_000;

/// The longest that people's comments may be in it.
const COMMENTS: usize = 8_000;

impl Activities {
    pub(super) async fn brief(
        &self,
        work: &Work,
        decision: &Decision,
        note: Option<&Reference>,
    ) -> Result<Told, Error> {
        let note = match note {
            Some(note) => Some(self.store.kept(note).await?),
            None => None,
        };
        let attempts = self.attempts(work).await?;
        let most = work.memory.max_iterations(&work.rules);
        let text = written(Some(decision), note.as_deref(), &attempts, most);
        Ok(Outcome::Briefed(self.store.keep(&text).await?).into())
    }

    /// The same for whoever plans anew, or runs a plan that was adjusted: nobody briefed them.
    pub(super) async fn failures(&self, work: &Work) -> Result<Option<String>, Error> {
        let attempts = self.attempts(work).await?;
        if attempts.iter().all(|attempt| attempt.report.is_none() && attempt.faults.is_empty()) {
            return Ok(None);
        }
        let most = work.memory.max_iterations(&work.rules);
        Ok(Some(written(work.memory.decision.as_ref(), None, &attempts, most)))
    }
}

/// A brief, with everything in it that there is, and bounded.
fn written(
    decision: Option<&Decision>,
    note: Option<&str>,
    attempts: &[Attempt],
    most: u16,
) -> String {
    let mut text = String::new();
    if let Some(last) = attempts.last() {
        let tier = last.tier.map(|tier| format!(", in tier {tier}")).unwrap_or_default();
        let _ = write!(text, "Attempt {} of at most {most}{tier}, did not pass: ", last.number);
        let _ = writeln!(text, "{}.", last.ending);
    }
    if let Some(decision) = decision {
        let _ = writeln!(text, "It was decided to {decision}.");
    }
    if let Some(note) = note {
        let _ =
            writeln!(text, "\n## What people, or a hook, say\n\n{}", cut(note.trim(), COMMENTS));
    }
    if let Some(compared) = compared(attempts) {
        let _ = write!(text, "\n## What failed\n\n{compared}");
    }
    if let Some(report) = attempts.last().and_then(|attempt| attempt.report.as_deref()) {
        let _ = writeln!(text, "\n{}", cut(report.trim(), REPORT));
    }
    if let [earlier @ .., _] = attempts
        && !earlier.is_empty()
    {
        let _ = write!(text, "\n## Before that\n\n{}", in_short(earlier));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tamma_core::escalation::{Verdict, Why};
    use tamma_core::tier::Tier;

    fn attempt(number: u16, fault: &str, report: &str) -> Attempt {
        Attempt {
            number,
            tier: Some(Tier::Simple),
            commit: None,
            ending: "gates failed".to_owned(),
            faults: [fault.to_owned()].into(),
            report: Some(report.to_owned()),
            decision: None,
        }
    }

    #[test]
    fn a_brief_says_what_failed_what_is_new_and_what_was_decided() {
        let verdict = Verdict::Iterate(Tier::Moderate);
        let decision = Decision { verdict, why: Why::RoomToTry };
        let mut attempts = vec![
            attempt(1, "tests: a", "## `tests` failed"),
            attempt(2, "tests: b", "## `tests` failed"),
        ];
        attempts[0].decision = Some(decision);
        let text = written(Some(&decision), Some("Mind the tests.\n"), &attempts, 10);
        assert_eq!(
            text,
            "\
Attempt 2 of at most 10, in tier simple, did not pass: gates failed.
It was decided to try the same plan again, in tier moderate: there is still something to try.

## What people, or a hook, say

Mind the tests.

## What failed

New in this attempt:

- tests: b

Failed in the attempt before, and no longer does:

- tests: a


## `tests` failed

## Before that

- attempt 1 (simple): gates failed, 1 fault; then: try the same plan again, in tier moderate: there is still something to try
"
        );
    }

    #[test]
    fn a_brief_is_bounded() {
        let attempts = [attempt(1, "tests", &"x".repeat(1_000_000))];
        let text = written(None, Some(&"y".repeat(1_000_000)), &attempts, 10);
        assert!(text.len() < 25_000, "{}", text.len());
    }
}
