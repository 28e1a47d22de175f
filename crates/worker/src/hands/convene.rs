//! Asks the council about a task that is stuck: one seat for each job.
//!
//! A member gets what was tried and nothing of what other members think, and a home of its own. The
//! chair gets what all of them said. What they hand in is checked like a plan.

use std::fmt::Write as _;

use serde_json::json;
use tamma_core::council::{Conclusion, Opinion, Place, Spoken, View, minutes, said};
use tamma_core::failure::{Failure, FailureKind};
use tamma_core::rules::Seat;
use tamma_core::task_loop::Outcome;
use tamma_core::tier::Tier;
use tamma_engine::agent::{Mode, RunEnd};
use tamma_engine::submission::Submission;
use tamma_engine::worktree::Worktree;
use tamma_flow::port::Answer;

use super::attempts::{Attempt, cut};
use super::{Activities, Told, Work};
use crate::error::Error;
use crate::prompts::{Prompt, fill};
use crate::runs::{Place as Room, Run};

/// The longest diff and the longest report of one attempt that a council reads, in bytes.
const EACH: usize = 8_000;

/// The longest text of all attempts together. The newest are kept.
const ALL: usize = 80_000;

impl Activities {
    pub(super) async fn convene(
        &self,
        work: &Work,
        council: u8,
        seat: Option<Place>,
        opinions: &[Opinion],
    ) -> Result<Told, Error> {
        let site = self.site(work).await?;
        let worktree = self.worktree(work, &site).await?;
        let plan = match &work.memory.plan {
            Some(plan) => self.text_of(work, &plan.kept_at).await?,
            None => "There is none yet.".to_owned(),
        };
        let attempts = self.attempts(work).await?;
        let why = work.memory.decision.map(|decision| decision.to_string());
        // Flaws of a plan, or the words of a hook: what failed where no attempt did.
        let note = match &work.memory.note {
            Some(note) => Some(cut(&self.store.kept(note).await?, EACH)),
            None => None,
        };
        let tried = self.tried(work, &worktree, &attempts).await?;
        let about = |opinions: &str| {
            json!({
                "task": work.task, "plan": plan, "why": why, "attempts": tried,
                "note": note, "opinions": opinions,
            })
        };
        let rules = &work.rules.council;
        match seat {
            Some(place @ Place::Member(number)) => {
                let room =
                    Room { seat: place.seat(rules).clone(), home: Some(room(council, number)) };
                let prompt = fill(Prompt::Advise, about(""))?;
                let run = self.look(work, &site, &worktree, room, Mode::Advise, prompt).await?;
                self.pass("agent ended")?;
                match &run.report.end {
                    RunEnd::Finished { submission: Submission::Opinion(view), .. } => {
                        let kept = serde_json::to_string_pretty(view).unwrap_or_default();
                        let kept = self.surely(&work.call.stop, || self.store.keep(&kept)).await?;
                        Ok(ended(&run, Outcome::Opined(kept)))
                    }
                    _ => self.said_nothing(work, run).await,
                }
            }
            Some(Place::Chair) => {
                let members = self.spoken(work, opinions).await?;
                let home = Some(format!("council-{council}-chair"));
                let room = Room { seat: rules.chair.clone(), home };
                let prompt = fill(Prompt::Conclude, about(&said(&members)))?;
                let run = self.look(work, &site, &worktree, room, Mode::Conclude, prompt).await?;
                self.pass("agent ended")?;
                match &run.report.end {
                    RunEnd::Finished { submission: Submission::Conclusion(conclusion), .. } => {
                        let text = minutes(conclusion, &rules.chair, &members);
                        let kept = self.surely(&work.call.stop, || self.store.keep(&text)).await?;
                        Ok(ended(&run, Outcome::Concluded(kept)))
                    }
                    _ => self.said_nothing(work, run).await,
                }
            }
            // As tasks had it before there were seats: one model says it all.
            None => {
                let seat = Seat::from(Tier::TOP);
                let prompt = fill(Prompt::Advise, about(""))?;
                let run =
                    self.look(work, &site, &worktree, seat.clone(), Mode::Advise, prompt).await?;
                self.pass("agent ended")?;
                match &run.report.end {
                    RunEnd::Finished { submission: Submission::Opinion(view), .. } => {
                        let View { root_cause, fix, against, .. } = view.clone();
                        let conclusion = Conclusion { root_cause, fix, dissent: vec![against] };
                        let text = minutes(&conclusion, &seat, &[]);
                        let kept = self.surely(&work.call.stop, || self.store.keep(&text)).await?;
                        Ok(ended(&run, Outcome::Concluded(kept)))
                    }
                    _ => self.said_nothing(work, run).await,
                }
            }
        }
    }

    /// The answer for a seat that handed nothing in that can be used.
    async fn said_nothing(&self, work: &Work, run: Run) -> Result<Told, Error> {
        let RunEnd::Finished { submission, .. } = &run.report.end else {
            return self.unfinished(work, run).await;
        };
        let flaws = match submission {
            Submission::Invalid { flaws, .. } => flaws.join("; "),
            _ => "nothing was handed in".to_owned(),
        };
        let reason: String = format!("what it handed in cannot be used: {flaws}")
            .chars()
            .take(tamma_core::ids::Reason::MAX)
            .collect();
        let reason = reason.parse().map_err(|_| Error::Odd("a reason is empty".to_owned()))?;
        Ok(ended(&run, Outcome::Failed(Failure { kind: FailureKind::Crashed, reason })))
    }

    /// What the members said, as it was kept.
    async fn spoken(&self, work: &Work, opinions: &[Opinion]) -> Result<Vec<Spoken>, Error> {
        let mut spoken = Vec::new();
        for (seat, opinion) in work.rules.council.members.iter().zip(opinions) {
            let view = match opinion {
                Opinion::Absent => None,
                Opinion::Said(kept) => {
                    let text = self.store.kept(kept).await?;
                    let odd = |error| Error::Odd(format!("an opinion cannot be read: {error}"));
                    Some(serde_json::from_str(&text).map_err(odd)?)
                }
            };
            spoken.push(Spoken { seat: seat.clone(), view });
        }
        Ok(spoken)
    }

    /// What was tried: each attempt with its errors, its diff and what was decided. The oldest are
    /// left out where all of it would be too long.
    async fn tried(
        &self,
        work: &Work,
        worktree: &Worktree,
        attempts: &[Attempt],
    ) -> Result<String, Error> {
        let (base, mut texts, mut length) = (work.base()?, Vec::new(), 0);
        for attempt in attempts.iter().rev() {
            let tier = attempt.tier.map(|tier| format!(", tier {tier}")).unwrap_or_default();
            let mut text = format!("## Attempt {}{tier}: {}\n", attempt.number, attempt.ending);
            if let Some(decision) = attempt.decision {
                let _ = writeln!(text, "\nThen it was decided to {decision}.");
            }
            if let Some(report) = &attempt.report {
                let _ = writeln!(text, "\n{}", cut(report.trim(), EACH));
            }
            if let Some(commit) = attempt.commit {
                let diff = worktree.diff(base, commit).await?;
                let diff = cut(diff.trim(), EACH);
                let _ = writeln!(
                    text,
                    "\nWhat it changed, against the base:\n\n````diff\n{diff}\n````"
                );
            }
            length += text.len();
            if length > ALL && !texts.is_empty() {
                texts.push("Earlier attempts are left out.\n".to_owned());
                break;
            }
            texts.push(text);
        }
        texts.reverse();
        Ok(if texts.is_empty() { "Nothing has run yet.".to_owned() } else { texts.join("\n") })
    }
}

/// A member's own home: what another one has left there would not be an opinion apart.
fn room(council: u8, member: u8) -> String {
    format!("council-{council}-member-{member}")
}

fn ended(run: &Run, outcome: Outcome) -> Told {
    Told::from(Answer::Ended { outcome, usage: run.report.usage })
}
