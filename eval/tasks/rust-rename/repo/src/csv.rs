//! Exchange with the bank. Its format is fixed: the header is `acct,amount,note`.

use crate::entry::Entry;
use crate::Acct;

/// Header that the bank expects.
pub const HEADER: &str = "acct,amount,note";

/// Writes an account in the bank's format.
pub fn write(acct: &Acct) -> String {
    let mut text = format!("{HEADER}\n");
    for entry in &acct.entries {
        text.push_str(&format!("{},{},{}\n", acct.name, entry.amount, entry.note));
    }
    text
}

/// Reads an account in the bank's format.
pub fn read(text: &str) -> Option<Acct> {
    let mut lines = text.lines();
    if lines.next()? != HEADER {
        return None;
    }
    let mut acct = Acct::default();
    for line in lines {
        let mut parts = line.splitn(3, ',');
        acct.name = parts.next()?.to_owned();
        let amount = parts.next()?.parse().ok()?;
        acct.entries.push(Entry { amount, note: parts.next()?.to_owned() });
    }
    Some(acct)
}
