//! Transfers.

use crate::entry::Entry;
use crate::Acct;

/// Moves an amount, if the account has it.
pub fn transfer(from: &mut Acct, to: &mut Acct, amount: i64) -> bool {
    if amount <= 0 || from.bal() < amount {
        return false;
    }
    from.entries.push(Entry { amount: -amount, note: format!("to {}", to.name) });
    to.entries.push(Entry { amount, note: format!("from {}", from.name) });
    true
}
