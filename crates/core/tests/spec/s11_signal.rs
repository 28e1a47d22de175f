//! Section 11: how a phase says how it ended.

use proptest::prelude::*;
use rstest::rstest;
use strum::IntoEnumIterator as _;
use tamma_core::pipeline::Phase;
use tamma_core::pipeline::signal::{Signal, Source, parse, read};

#[rstest]
#[case::exactly("some work\nQA PASS", Signal::Success)]
#[case::empty_lines_after_it("QA PASS\n\n  \n", Signal::Success)]
#[case::line_end_of_another_system("work\r\nQA PASS\r\n", Signal::Success)]
#[case::blocked("QA BLOCKED: no database", Signal::Blocked("no database".to_owned()))]
#[case::failed("QA VERIFY FAILED: two tests", Signal::Failed("two tests".to_owned()))]
#[case::failed_by_something_blocked(
    "QA FAILED: the port is BLOCKED: 80",
    Signal::Failed("the port is BLOCKED: 80".to_owned())
)]
#[case::blocked_by_something_failed(
    "QA BLOCKED: it FAILED: twice",
    Signal::Blocked("it FAILED: twice".to_owned())
)]
fn the_last_line_is_the_signal(#[case] output: &str, #[case] signal: Signal) {
    assert_eq!(parse(output, Phase::Qa), signal);
}

#[rstest]
#[case::nothing("", "")]
#[case::only_blank("\n \n", "")]
#[case::in_a_sentence("So I say QA PASS", "So I say QA PASS")]
#[case::quoted("`QA PASS`", "`QA PASS`")]
#[case::full_stop("QA PASS.", "QA PASS.")]
#[case::another_case("qa pass", "qa pass")]
#[case::indented("  QA PASS", "  QA PASS")]
#[case::commentary_after_it("QA PASS\nAll done!", "All done!")]
#[case::of_another_phase("CODE REVIEW PASS", "CODE REVIEW PASS")]
#[case::no_reason("QA BLOCKED: ", "QA BLOCKED:")]
#[case::blank_reason("QA FAILED:  \t", "QA FAILED:")]
#[case::no_name(" FAILED: it", " FAILED: it")]
#[case::nothing_before("FAILED: it", "FAILED: it")]
#[case::prose_before("It says QA FAILED: it", "It says QA FAILED: it")]
#[case::blank_before("   QA FAILED: it", "   QA FAILED: it")]
#[case::small_letters("Qa FAILED: it", "Qa FAILED: it")]
fn anything_else_is_no_clear_signal(#[case] output: &str, #[case] last: &str) {
    assert_eq!(parse(output, Phase::Qa), Signal::Unclear(last.to_owned()));
}

#[test]
fn a_structured_result_goes_before_the_last_line() {
    let structured = Some(Signal::Blocked("why".to_owned()));
    assert_eq!(
        read(structured, "QA PASS", Phase::Qa),
        (Signal::Blocked("why".to_owned()), Source::Structured)
    );
    assert_eq!(read(None, "QA PASS", Phase::Qa), (Signal::Success, Source::LastLine));
}

proptest! {
    #[test]
    fn any_output_can_be_read_and_only_the_exact_line_is_success(output in "\\PC*(\n\\PC*){0,3}") {
        for phase in Phase::iter() {
            let is_exact = output.lines().any(|line| line.trim_end() == phase.success_signal());
            prop_assert!(is_exact || parse(&output, phase) != Signal::Success);
        }
    }

    #[test]
    fn every_signal_that_is_written_is_read_back(reason in "[a-zA-Z][a-zA-Z :]{0,20}[a-z]") {
        for phase in Phase::iter() {
            for signal in [
                Signal::Success,
                Signal::Blocked(reason.clone()),
                Signal::Failed(reason.clone()),
            ] {
                prop_assert_eq!(parse(&signal.line(phase).unwrap(), phase), signal);
            }
        }
    }
}
