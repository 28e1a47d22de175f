//! Accounts and transfers between them.

pub mod acct;
pub mod audit;
pub mod csv;
pub mod entry;
pub mod report;
pub mod transfer;

pub use acct::Acct;
