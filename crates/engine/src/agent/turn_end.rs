//! End of a turn: what an agent's stop reason and submission mean for the run.
//!
//! | Stop reason | With a valid submission | Without one |
//! |---|---|---|
//! | `end_turn`, or unknown | finished | asked again; an implementing run once, then finished; a phase never |
//! | `max_tokens`, `max_turn_requests` | finished | continued twice, then failed |
//! | `cancelled`, not by us | finished | continued twice, then failed |
//! | `refusal` | finished | refused |
//!
//! A turn that ended too early is never treated as finished work, and a refused prompt is never
//! repeated.

use super::{RunEnd, RunMode};
use crate::submission::{self, Submission};

/// Number of times that a session is continued after its turn ended too early.
const MAX_CONTINUATIONS: u8 = 2;

/// Maximum number of characters of a refusal that are kept.
const MAX_REFUSAL_CHARS: usize = 300;

/// Meaning of a stop reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnEnd {
    /// The agent ended its turn.
    Complete,
    /// The turn ended too early, for this reason.
    Cut(&'static str),
    /// The model refused.
    Refused,
}

impl TurnEnd {
    fn from_stop_reason(stop_reason: &str) -> Self {
        match stop_reason {
            "max_tokens" => Self::Cut("the model reached its output limit"),
            "max_turn_requests" => Self::Cut("the agent reached its limit of model calls"),
            "cancelled" => Self::Cut("the agent cancelled its own turn"),
            "refusal" => Self::Refused,
            // An unknown reason is a claim like `end_turn`.
            _ => Self::Complete,
        }
    }
}

/// Finished turn.
pub(super) struct FinishedTurn {
    /// Stop reason in the protocol's terms.
    pub(super) stop_reason: String,
    /// Submission so far, or its errors.
    pub(super) submitted: Result<Submission, Vec<String>>,
    /// Messages of the turn.
    pub(super) message: String,
    /// The agent can be prompted again: nobody has cancelled the run, and its model responds.
    pub(super) can_continue: bool,
}

/// Next action of a session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextTurn {
    /// End the run.
    End(RunEnd),
    /// Prompt the agent to correct its submission.
    Correct {
        /// Text of the prompt.
        prompt: String,
        /// Errors of the submission.
        errors: Vec<String>,
    },
    /// Prompt the agent again.
    Continue {
        /// Text of the prompt.
        prompt: String,
        /// Reason, for people.
        reason: String,
    },
}

/// Decides after each turn of a session how it continues.
pub(super) struct TurnPolicy {
    mode: RunMode,
    corrections_left: u8,
    continuations_left: u8,
    asked_for_result: bool,
}

impl TurnPolicy {
    /// Creates the policy of a session that may correct its submission this many times.
    pub(super) fn new(mode: RunMode, corrections: u8) -> Self {
        Self {
            mode,
            corrections_left: corrections,
            continuations_left: MAX_CONTINUATIONS,
            asked_for_result: false,
        }
    }

    /// Decides what follows a turn.
    pub(super) fn next(&mut self, turn: FinishedTurn) -> NextTurn {
        let FinishedTurn { stop_reason, submitted, message, can_continue } = turn;
        let errors = match submitted {
            Ok(submission) => return NextTurn::End(RunEnd::Finished { stop_reason, submission }),
            Err(errors) => errors,
        };
        match TurnEnd::from_stop_reason(&stop_reason) {
            TurnEnd::Refused => NextTurn::End(RunEnd::Refused { reason: refusal(&message) }),
            TurnEnd::Cut(reason) if can_continue && self.continuations_left > 0 => {
                self.continuations_left -= 1;
                NextTurn::Continue {
                    prompt: format!(
                        "Your turn ended before your work did: {reason}. Continue where you \
                         stopped.\n\n{}",
                        submission::instructions(self.mode)
                    ),
                    reason: reason.to_owned(),
                }
            }
            TurnEnd::Cut(reason) if can_continue => NextTurn::End(RunEnd::Crashed {
                reason: format!("{reason}, and again after {MAX_CONTINUATIONS} continuations"),
            }),
            TurnEnd::Complete | TurnEnd::Cut(_) if self.mode == RunMode::Implement => {
                self.ask_for_result(stop_reason, can_continue)
            }
            // The signal of a phase is its last word: without a clear one, the phase has failed.
            TurnEnd::Complete
                if can_continue && self.corrections_left > 0 && self.mode != RunMode::Phase =>
            {
                self.corrections_left -= 1;
                NextTurn::Correct { prompt: submission::retry_prompt(self.mode, &errors), errors }
            }
            // Asking again is useless if the model cannot respond.
            TurnEnd::Complete | TurnEnd::Cut(_) => {
                let submission = Submission::Invalid { errors, message };
                NextTurn::End(RunEnd::Finished { stop_reason, submission })
            }
        }
    }

    /// Asks once for the result of an implementing run. After that, the run counts as finished with
    /// what it did, and the gates decide.
    fn ask_for_result(&mut self, stop_reason: String, can_continue: bool) -> NextTurn {
        if self.asked_for_result || !can_continue {
            let submission = Submission::NotRequired;
            return NextTurn::End(RunEnd::Finished { stop_reason, submission });
        }
        self.asked_for_result = true;
        NextTurn::Continue {
            prompt: format!(
                "You ended your turn without a result. If work is left, finish it first.\n\n{}",
                submission::instructions(self.mode)
            ),
            reason: "the agent ended its turn without a result".to_owned(),
        }
    }
}

/// Returns the reason of a refusal: the start of the last message, if there is one.
fn refusal(message: &str) -> String {
    let words: String = message.trim().chars().take(MAX_REFUSAL_CHARS).collect();
    if words.is_empty() {
        "the model refused the work".to_owned()
    } else {
        format!("the model refused the work: {words}")
    }
}

#[cfg(test)]
mod tests {
    use tamma_core::run_result::{RunResult, RunStatus};

    use super::*;

    fn turn(stop_reason: &str, submitted: Option<Submission>) -> FinishedTurn {
        FinishedTurn {
            stop_reason: stop_reason.to_owned(),
            submitted: submitted.ok_or_else(|| vec!["no result was submitted".to_owned()]),
            message: "I cannot help with that.".to_owned(),
            can_continue: true,
        }
    }

    fn result() -> Submission {
        Submission::Result(RunResult {
            status: RunStatus::Done,
            summary: "Added the check.".to_owned(),
            deviations: Vec::new(),
            unverified: Vec::new(),
            answers: Vec::new(),
        })
    }

    fn finished(stop_reason: &str, submission: Submission) -> NextTurn {
        NextTurn::End(RunEnd::Finished { stop_reason: stop_reason.to_owned(), submission })
    }

    #[test]
    fn phase_without_a_clear_signal_is_not_asked_again() {
        let mut policy = TurnPolicy::new(RunMode::Phase, 2);
        let NextTurn::End(RunEnd::Finished { submission, .. }) =
            policy.next(turn("end_turn", None))
        else {
            panic!("the run ends");
        };
        assert!(matches!(submission, Submission::Invalid { .. }), "{submission:?}");
    }

    #[test]
    fn submitted_result_ends_the_run_after_every_stop_reason() {
        for stop in
            ["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled", "something new"]
        {
            let mut policy = TurnPolicy::new(RunMode::Implement, 2);
            assert_eq!(policy.next(turn(stop, Some(result()))), finished(stop, result()));
        }
    }

    #[test]
    fn implementer_without_a_result_is_asked_once() {
        for stop in ["end_turn", "something new"] {
            let mut policy = TurnPolicy::new(RunMode::Implement, 2);
            let NextTurn::Continue { prompt, .. } = policy.next(turn(stop, None)) else {
                panic!("not asked after {stop}")
            };
            assert!(prompt.contains("`submit_result`"), "{prompt}");
            assert_eq!(policy.next(turn(stop, None)), finished(stop, Submission::NotRequired));
        }
    }

    #[test]
    fn cut_turn_is_continued_twice_and_then_fails() {
        for stop in ["max_tokens", "max_turn_requests", "cancelled"] {
            for mode in [RunMode::Implement, RunMode::Plan] {
                let mut policy = TurnPolicy::new(mode, 2);
                for _ in 0..2 {
                    let next = policy.next(turn(stop, None));
                    assert!(matches!(next, NextTurn::Continue { .. }), "{stop}: {next:?}");
                }
                let next = policy.next(turn(stop, None));
                assert!(matches!(next, NextTurn::End(RunEnd::Crashed { .. })), "{stop}: {next:?}");
            }
        }
    }

    #[test]
    fn continued_turn_can_still_finish() {
        let mut policy = TurnPolicy::new(RunMode::Implement, 2);
        policy.next(turn("max_tokens", None));
        assert_eq!(policy.next(turn("end_turn", Some(result()))), finished("end_turn", result()));
    }

    #[test]
    fn refusal_is_never_repeated() {
        for mode in [RunMode::Implement, RunMode::Validate] {
            let reason = "the model refused the work: I cannot help with that.".to_owned();
            let next = TurnPolicy::new(mode, 2).next(turn("refusal", None));
            assert_eq!(next, NextTurn::End(RunEnd::Refused { reason }));
        }
    }

    #[test]
    fn invalid_submission_is_corrected_a_limited_number_of_times() {
        let mut policy = TurnPolicy::new(RunMode::Plan, 1);
        let errors = vec!["no result was submitted".to_owned()];
        let NextTurn::Correct { errors: named, .. } = policy.next(turn("end_turn", None)) else {
            panic!("not asked again")
        };
        assert_eq!(named, errors);
        let message = "I cannot help with that.".to_owned();
        let invalid = Submission::Invalid { errors, message };
        assert_eq!(policy.next(turn("end_turn", None)), finished("end_turn", invalid));
    }

    #[test]
    fn run_that_cannot_continue_is_not_prompted() {
        let stopped = |stop: &str| FinishedTurn { can_continue: false, ..turn(stop, None) };
        for stop in ["end_turn", "max_tokens", "cancelled"] {
            for mode in [RunMode::Implement, RunMode::Plan] {
                let next = TurnPolicy::new(mode, 2).next(stopped(stop));
                assert!(matches!(next, NextTurn::End(RunEnd::Finished { .. })), "{next:?}");
            }
        }
    }
}
