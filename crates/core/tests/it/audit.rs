//! Hash chain of the audit log: every change of a chain is found, and located.

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Map, Value, json};
use tamma_core::audit::{
    AuditFault, AuditHead, BrokenAuditEntry, ChainReport, ChainVerifier, ChainedEntry,
    MAX_EXPORT_BATCH, chain_hash, entry_content, genesis,
};
use tamma_core::ids::Digest;

fn chain(contents: &[String]) -> Vec<ChainedEntry> {
    let mut head = AuditHead::empty();
    let next = |content: &String| {
        let entry = ChainedEntry::following(head, content.clone());
        head = entry.head();
        entry
    };
    contents.iter().map(next).collect()
}

fn head_of(entries: &[ChainedEntry]) -> AuditHead {
    entries.last().map_or_else(AuditHead::empty, ChainedEntry::head)
}

fn verify(entries: &[ChainedEntry], head: Option<AuditHead>) -> ChainReport {
    let mut verifier = ChainVerifier::new(None);
    for entry in entries {
        verifier.read(entry);
    }
    verifier.finish(head)
}

fn broken(entries: &[ChainedEntry], head: AuditHead) -> Option<(u64, AuditFault)> {
    verify(entries, Some(head)).broken.map(|it| (it.position, it.fault))
}

/// Between two and twenty contents, each different from the others.
fn contents() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[a-z\"\\\\é]{0,12}", 2..20).prop_map(|texts| {
        let number = |(id, text): (usize, String)| json!({ "id": id, "text": text }).to_string();
        texts.into_iter().enumerate().map(number).collect()
    })
}

proptest! {
    #[test]
    fn an_intact_chain_is_verified(contents in contents(), cut in any::<Index>()) {
        let entries = chain(&contents);
        let report = verify(&entries, Some(head_of(&entries)));
        prop_assert_eq!(report.verified, entries.len() as u64);
        prop_assert_eq!(report.head, head_of(&entries));
        prop_assert_eq!(report.broken, None);
        // An export can contain a batch twice, and another entry in its place is found.
        let at = cut.index(entries.len());
        let doubled = |again: &[ChainedEntry]| [&entries[..], again, &entries[at..]].concat();
        prop_assert_eq!(verify(&doubled(&entries[at..]), None).broken, None);
        let (before, other) = (head_of(&entries[..at]), "{\"id\":\"other\"}".to_owned());
        let forged = verify(&doubled(&[ChainedEntry::following(before, other)]), None).broken;
        let expected = BrokenAuditEntry { position: at as u64 + 1, fault: AuditFault::Changed };
        prop_assert_eq!(forged, Some(expected));
    }

    #[test]
    fn an_exported_line_is_read_back(contents in contents()) {
        for entry in chain(&contents) {
            let line = entry.to_line();
            let value: Value = serde_json::from_str(&line).expect("JSON");
            prop_assert_eq!(&value["entry"].to_string(), &entry.content);
            prop_assert_eq!(ChainedEntry::from_line(&format!("{line}\n")), Some(entry));
        }
        prop_assert_eq!(ChainedEntry::from_line("{}"), None);
    }

    #[test]
    fn a_changed_entry_is_located(
        contents in contents(), at in any::<Index>(), what in 0..3_u8,
    ) {
        let mut entries = chain(&contents);
        let head = head_of(&entries);
        let at = at.index(entries.len());
        let changed = &mut entries[at];
        match what {
            0 => changed.content.push(' '),
            1 => changed.hash = Digest::of(b"other"),
            _ => changed.previous = Digest::of(b"other"),
        }
        prop_assert_eq!(broken(&entries, head), Some((at as u64 + 1, AuditFault::Changed)));
    }

    #[test]
    fn a_removed_entry_is_located(contents in contents(), at in any::<Index>()) {
        let mut entries = chain(&contents);
        let head = head_of(&entries);
        let at = at.index(entries.len());
        entries.remove(at);
        let missing = at as u64 + 1;
        prop_assert_eq!(broken(&entries, head), Some((missing, AuditFault::Missing)));
        // Closing the gap does not hide it.
        for (position, entry) in (1..).zip(&mut entries) {
            entry.position = position;
        }
        let fault = if at == entries.len() { AuditFault::Missing } else { AuditFault::Unlinked };
        prop_assert_eq!(broken(&entries, head), Some((missing, fault)));
    }

    #[test]
    fn a_reordered_entry_is_located(
        contents in contents(), one in any::<Index>(), other in any::<Index>(),
    ) {
        let mut entries = chain(&contents);
        let head = head_of(&entries);
        let (one, other) = (one.index(entries.len()), other.index(entries.len()));
        prop_assume!(one != other);
        let (first, second) = (one.min(other), one.max(other));
        entries.swap(first, second);
        for (position, entry) in (1..).zip(&mut entries) {
            entry.position = position;
        }
        let moved = AuditFault::Moved { to: second as u64 + 1 };
        prop_assert_eq!(broken(&entries, head), Some((first as u64 + 1, moved)));
    }

    #[test]
    fn a_rewritten_entry_is_found_at_the_next_one(contents in contents(), at in any::<Index>()) {
        let mut entries = chain(&contents);
        let head = head_of(&entries);
        let at = at.index(entries.len());
        let forged = &mut entries[at];
        forged.content.push(' ');
        forged.hash = chain_hash(forged.previous, &forged.content);
        let last = at + 1 == entries.len();
        let expected = if last { AuditFault::EndChanged } else { AuditFault::Unlinked };
        let index = if last { at } else { at + 1 };
        prop_assert_eq!(broken(&entries, head), Some((index as u64 + 1, expected)));
    }

    #[test]
    fn a_chain_that_was_rebuilt_is_found_by_a_hash_that_was_kept(
        contents in contents(), at in any::<Index>(),
    ) {
        let entries = chain(&contents);
        let at = at.index(entries.len());
        let anchor = entries[at].head();
        let mut forged = contents;
        forged[0].push(' ');
        let forged = chain(&forged);
        let mut verifier = ChainVerifier::new(Some(anchor));
        for entry in &forged {
            verifier.read(entry);
        }
        let report = verifier.finish(Some(head_of(&forged)));
        let replaced = BrokenAuditEntry { position: anchor.position, fault: AuditFault::Replaced };
        prop_assert_eq!(report.broken, Some(replaced));
        let mut verifier = ChainVerifier::new(Some(anchor));
        entries[..at].iter().for_each(|entry| verifier.read(entry));
        let missing = BrokenAuditEntry { position: anchor.position, fault: AuditFault::Missing };
        prop_assert_eq!(verifier.finish(None).broken, Some(missing));
    }
}

#[test]
fn the_hash_can_be_computed_with_other_tools() {
    // printf '%s' 'tamma audit log' | sha256sum
    assert_eq!(
        genesis().to_string(),
        "35b73ce0831fc3ff2b87771c47e82a10550a93474c8f94f3987b21124b2c5189"
    );
    // printf '%s\n%s' "$previous" '{"id":1}' | sha256sum
    assert_eq!(
        chain_hash(genesis(), r#"{"id":1}"#).to_string(),
        "769ee015ee5b36e558a51a9f503e74ea34b28e6a8f28383f0e57de8901b9485e"
    );
}

#[test]
fn an_entry_keeps_fields_that_this_version_does_not_know() {
    let mut request = Map::new();
    request.insert("later".to_owned(), Value::from(7));
    assert_eq!(
        entry_content(3, request.clone(), None),
        r#"{"id":3,"later":7,"outcome":{"result":"unknown"}}"#
    );
    let outcome = json!({ "result": "granted", "later": true });
    assert_eq!(
        entry_content(3, request, Some(outcome)),
        r#"{"id":3,"later":7,"outcome":{"result":"granted","later":true}}"#
    );
}

#[test]
fn only_the_last_batch_of_an_export_can_come_again() {
    let contents: Vec<String> = (0..250).map(|id| json!({ "id": id }).to_string()).collect();
    let entries = chain(&contents);
    let again = |from: usize| [&entries[..150], &entries[from..]].concat();
    assert_eq!(verify(&again(150 - MAX_EXPORT_BATCH), None).broken, None);
    let older = BrokenAuditEntry { position: 50, fault: AuditFault::Changed };
    assert_eq!(verify(&again(149 - MAX_EXPORT_BATCH), None).broken, Some(older));
}
