//! Accounts.

use crate::entry::Entry;

/// Account with its entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acct {
    pub name: String,
    pub entries: Vec<Entry>,
}

impl Acct {
    /// Creates an empty account.
    pub fn new(name: &str) -> Self {
        Acct { name: name.to_owned(), entries: Vec::new() }
    }

    /// Returns the sum of the entries.
    pub fn bal(&self) -> i64 {
        self.entries.iter().map(|entry| entry.amount).sum()
    }
}
