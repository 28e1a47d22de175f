use ledger::account::Account;
use ledger::entry::Entry;
use ledger::{audit, csv, report, transfer};

fn account(name: &str, amount: i64) -> Account {
    let mut account = Account::new(name);
    account.entries.push(Entry { amount, note: "start".to_owned() });
    account
}

#[test]
fn the_new_names_work_everywhere() {
    let (mut a, mut b): (Account, ledger::Account) = (account("a", 10), account("b", 0));
    assert!(transfer::transfer(&mut a, &mut b, 4));
    assert_eq!((a.balance(), b.balance()), (6, 4));
    assert_eq!(report::lines(&[a.clone(), b]), ["a: 6", "b: 4"]);
    assert!(audit::overdrawn(&[a]).is_empty());
    assert_eq!(Entry::closing(&account("x", 5)).amount, -5);
}

#[test]
fn the_format_of_the_bank_stays() {
    assert_eq!(csv::HEADER, "acct,amount,note");
    assert_eq!(csv::read("acct,amount,note\nx,3,y\n").map(|it| it.balance()), Some(3));
    assert_eq!(csv::read("account,amount,note\nx,3,y\n"), None);
}

#[test]
fn the_old_names_are_gone() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    assert!(!folder.join("src/acct.rs").exists());
    for part in ["src", "tests"] {
        for file in std::fs::read_dir(folder.join(part)).unwrap() {
            let path = file.unwrap().path();
            if path.ends_with("tests/hidden.rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(!text.contains("Acct"), "{}", path.display());
            assert!(!text.contains(".bal()") && !text.contains("fn bal("), "{}", path.display());
        }
    }
}
