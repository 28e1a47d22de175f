//! Comparison of this machine's clock with the database's.

use chrono::{DateTime, TimeDelta, Utc};
use tamma_store::Store;

use crate::roles::now;

/// Difference that is still accepted.
const TOLERANCE: TimeDelta = TimeDelta::seconds(2);

/// What to do about a wrong clock.
pub(crate) const HELP: &str =
    "synchronise the clocks of all machines, for example with chrony or systemd-timesyncd";

/// Returns how the clock of this machine differs from the database's, in words; `None` if it hardly does.
pub(crate) async fn clock_problem(store: &Store) -> Result<Option<String>, tamma_store::Error> {
    let asked = now();
    let theirs = store.database_time().await?;
    Ok(describe(theirs, (asked, now())))
}

/// The database answered at some time between `asked` and `answered`, by the clock of this machine.
fn describe(
    database: DateTime<Utc>,
    (asked, answered): (DateTime<Utc>, DateTime<Utc>),
) -> Option<String> {
    let (ahead, behind) = (asked - database, database - answered);
    let (difference, direction) = if ahead > TOLERANCE {
        (ahead, "ahead of")
    } else if behind > TOLERANCE {
        (behind, "behind")
    } else {
        return None;
    };
    let seconds = difference.num_seconds();
    Some(format!("the clock of this machine is {seconds} s {direction} the database's"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_difference_that_the_answer_cannot_explain_is_a_problem() {
        let at = |seconds| DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds);
        let problem = |asked, answered| describe(at(100), (at(asked), at(answered)));
        assert_eq!(problem(99, 101), None);
        assert_eq!(problem(90, 110), None, "a slow answer");
        assert_eq!(problem(102, 103), None);
        assert_eq!(
            problem(3_700, 3_701).as_deref(),
            Some("the clock of this machine is 3600 s ahead of the database's")
        );
        assert_eq!(
            problem(39, 40).as_deref(),
            Some("the clock of this machine is 60 s behind the database's")
        );
    }
}
