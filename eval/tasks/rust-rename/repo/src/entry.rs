//! Entries of an [`Acct`](crate::Acct).

/// Change of a balance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub amount: i64,
    pub note: String,
}

impl Entry {
    /// Creates the entry that undoes the balance of an account.
    pub fn closing(acct: &crate::Acct) -> Self {
        Entry { amount: -acct.bal(), note: format!("close acct {}", acct.name) }
    }
}
