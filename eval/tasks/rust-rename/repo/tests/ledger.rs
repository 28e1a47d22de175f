use ledger::entry::Entry;
use ledger::{audit, csv, report, transfer, Acct};

fn acct(name: &str, amount: i64) -> Acct {
    let mut acct = Acct::new(name);
    acct.entries.push(Entry { amount, note: "start".to_owned() });
    acct
}

#[test]
fn a_transfer_moves_an_amount() {
    let (mut a, mut b) = (acct("a", 10), acct("b", 0));
    assert!(transfer::transfer(&mut a, &mut b, 4));
    assert!(!transfer::transfer(&mut a, &mut b, 7));
    assert_eq!((a.bal(), b.bal()), (6, 4));
    assert_eq!(report::lines(&[a, b]), ["a: 6", "b: 4"]);
}

#[test]
fn overdrawn_accounts_are_found() {
    assert_eq!(audit::overdrawn(&[acct("a", 1), acct("b", -1)]).len(), 1);
    assert_eq!(Entry::closing(&acct("a", 5)).amount, -5);
}

#[test]
fn the_format_of_the_bank_round_trips() {
    let written = csv::write(&acct("a", 3));
    assert!(written.starts_with("acct,amount,note\n"));
    assert_eq!(csv::read(&written), Some(acct("a", 3)));
}
