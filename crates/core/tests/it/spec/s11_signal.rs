//! Section 11: signals of phases.

use proptest::prelude::*;
use rstest::rstest;
use tamma_core::pipeline::signal::{PhaseSignal, parse};
use tamma_core::pipeline::{PhaseDefinition, PipelineDefinition};

fn qa() -> PhaseDefinition {
    PipelineDefinition::built_in().phase(5).unwrap().clone()
}

#[rstest]
#[case::exactly("some work\nQA PASS", PhaseSignal::Success)]
#[case::empty_lines_after_it("QA PASS\n\n  \n", PhaseSignal::Success)]
#[case::line_end_of_another_system("work\r\nQA PASS\r\n", PhaseSignal::Success)]
#[case::blocked("QA BLOCKED: no database", PhaseSignal::Blocked("no database".to_owned()))]
#[case::failed("QA VERIFY FAILED: two tests", PhaseSignal::Failed("two tests".to_owned()))]
#[case::failed_by_something_blocked(
    "QA FAILED: the port is BLOCKED: 80",
    PhaseSignal::Failed("the port is BLOCKED: 80".to_owned())
)]
#[case::blocked_by_something_failed(
    "QA BLOCKED: it FAILED: twice",
    PhaseSignal::Blocked("it FAILED: twice".to_owned())
)]
fn the_last_line_is_the_signal(#[case] output: &str, #[case] signal: PhaseSignal) {
    assert_eq!(parse(output, &qa()), signal);
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
    assert_eq!(parse(output, &qa()), PhaseSignal::Unclear(last.to_owned()));
}

proptest! {
    #[test]
    fn any_output_can_be_parsed_and_only_the_exact_line_is_success(output in "\\PC*(\n\\PC*){0,3}") {
        for phase in PipelineDefinition::built_in().phases {
            let is_exact = output.lines().any(|line| line.trim_end() == phase.success_signal());
            prop_assert!(is_exact || parse(&output, &phase) != PhaseSignal::Success);
        }
    }

    #[test]
    fn every_signal_round_trips_through_its_line(reason in "[a-zA-Z][a-zA-Z :]{0,20}[a-z]") {
        for phase in PipelineDefinition::built_in().phases {
            for signal in [
                PhaseSignal::Success,
                PhaseSignal::Blocked(reason.clone()),
                PhaseSignal::Failed(reason.clone()),
            ] {
                prop_assert_eq!(parse(&signal.line(&phase).unwrap(), &phase), signal);
            }
        }
    }
}
