//! Reports for people.

use crate::Acct;

/// Returns one line per account.
pub fn lines(accts: &[Acct]) -> Vec<String> {
    accts.iter().map(|acct| format!("{}: {}", acct.name, acct.bal())).collect()
}
