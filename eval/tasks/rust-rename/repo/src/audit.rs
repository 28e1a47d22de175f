//! Audits.

use crate::Acct;

/// Returns the accounts that are overdrawn.
pub fn overdrawn(accts: &[Acct]) -> Vec<&Acct> {
    accts.iter().filter(|acct| acct.bal() < 0).collect()
}
