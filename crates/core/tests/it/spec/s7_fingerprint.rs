//! Section 7: fingerprints of attempts.

use rstest::rstest;
use tamma_core::review::Fingerprint;

fn error(text: &str) -> Fingerprint {
    Fingerprint::from_attempt([], [], text, "")
}

#[test]
fn empty_parts_have_no_digest() {
    assert_eq!(Fingerprint::from_attempt([], [], "", ""), Fingerprint::default());
    assert_eq!(Fingerprint::from_attempt([], [], " \n", "\n"), Fingerprint::default());
}

#[test]
fn each_part_has_a_digest_of_its_own() {
    let all = Fingerprint::from_attempt(["a"], ["b"], "c", "d");
    assert!(all.files.is_some() && all.tests.is_some());
    assert!(all.error.is_some() && all.diff.is_some());
    assert_eq!(Fingerprint::from_attempt(["a"], [], "", "").files, all.files);
    assert_eq!(Fingerprint::from_attempt([], ["b"], "", "").tests, all.tests);
    assert_eq!(Fingerprint::from_attempt([], [], "c", "").error, all.error);
    assert_eq!(Fingerprint::from_attempt([], [], "", "d").diff, all.diff);
}

#[test]
fn sets_have_no_order_and_no_repetition() {
    let one = Fingerprint::from_attempt(["a", "b", "a"], ["y", "x"], "", "");
    assert_eq!(one, Fingerprint::from_attempt(["b", "a"], ["x", "y", "y"], "", ""));
    assert_ne!(one.files, Fingerprint::from_attempt(["ab"], [], "", "").files);
}

#[test]
fn diffs_are_compared_exactly() {
    let of = |diff| Fingerprint::from_attempt([], [], "", diff).diff;
    assert_eq!(of("+let a = 1;"), of("+let a = 1;"));
    assert_ne!(of("+let a = 1;"), of("+let a = 2;"));
}

#[rstest]
#[case::line("src/a.rs:12:5: no such field", "src/a.rs:98:17: no such field")]
#[case::address("segfault at 0x7ffe12ab", "segfault at 0xdeadbeef01")]
#[case::commit(
    "at 0123456789abcdef0123456789abcdef01234567",
    "at fedcba9876543210fedcba9876543210fedcba98"
)]
#[case::id(
    "task 0b1c2d3e-aaaa-4bbb-8ccc-0123456789ab failed",
    "task ffffffff-eeee-4ddd-8ccc-ba9876543210 failed"
)]
#[case::unit("took 980ms.", "took 1.2s.")]
#[case::two_units("took 1m 30s.", "took 59s.")]
#[case::glued_units("took 1m30s.", "took 2 seconds.")]
#[case::time("2026-01-02T03:04:05.678Z boom", "2026-11-12 13:14:15+01:00 boom")]
#[case::temporary("in /tmp/.tmpAbC/x: gone", "in /var/folders/zz/T/y: gone")]
#[case::private("in /private/tmp/a1/x: gone", "in /var/tmp/qq: gone")]
#[case::digits("3 of 7 failed", "12 of 40 failed")]
#[case::colour("\u{1b}[1;31merror\u{1b}[0m: no", "error: no")]
#[case::space("error:\n    no\n", "error: no")]
fn the_same_error_in_another_run_has_the_same_digest(#[case] one: &str, #[case] other: &str) {
    assert!(error(one).error.is_some());
    assert_eq!(error(one), error(other));
}

#[rstest]
#[case("no such field `a`", "no such field `b`")]
#[case("src/a.rs:1: no", "src/b.rs:1: no")]
#[case("expected <n>", "expected s")]
#[case::part_of_a_word("in a5s only", "in a5m only")]
fn different_errors_have_different_digests(#[case] one: &str, #[case] other: &str) {
    assert_ne!(error(one), error(other));
}
