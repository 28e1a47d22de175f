//! Measures of an evaluation, computed from the results of its cases.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tamma_core::cost::Usd;

use crate::case::{Arm, CaseOutcome, CaseResult};

/// Evaluation as `results.json` stores it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EvalReport {
    /// Name of the set.
    pub set: String,
    /// Name of the agent.
    pub agent: String,
    /// Model, if one was chosen.
    pub model: Option<String>,
    /// Version of Tamma.
    pub tamma: String,
    /// Measures of each arm.
    pub arms: Vec<ArmMeasures>,
    /// Results of all cases.
    pub cases: Vec<CaseResult>,
}

/// Measures of one arm. A measure without data is omitted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmMeasures {
    /// Arm.
    pub arm: Arm,
    /// Number of cases.
    pub cases: usize,
    /// Cases with the expected outcome.
    pub solved: usize,
    /// Accepted changes that the hidden tests reject, or that should not exist.
    pub false_completions: usize,
    /// Cases without an accepted change.
    pub unsolved: usize,
    /// Cases that failed outside the agent's work.
    pub not_run: usize,
    /// Number of tasks.
    pub tasks: usize,
    /// Tasks that were solved in every trial.
    pub solved_every_trial: usize,
    /// Known cost of all cases.
    pub usd: Usd,
    /// Cost of all cases divided by the solved ones.
    pub usd_per_solved: Option<Usd>,
    /// Cases whose cost is unknown or partly estimated.
    pub usd_incomplete_cases: usize,
    /// Time of all cases divided by the solved ones, in seconds.
    pub seconds_per_solved: Option<u64>,
    /// Implementation runs per 100 cases.
    pub iterations_per_100_cases: u64,
    /// First commits whose gates passed, in percent.
    pub first_pass_gate_percent: Option<u64>,
    /// Planned files that changed, in percent.
    pub plan_precision_percent: Option<u64>,
    /// Changed files that were planned, in percent.
    pub plan_recall_percent: Option<u64>,
    /// Denied permission requests.
    pub denials: u32,
    /// Calls of the tool `run_gates`.
    pub gate_calls: u32,
    /// Questions of the agent.
    pub questions: u32,
    /// Input tokens that came from a cache, in percent.
    pub cached_input_percent: Option<u64>,
}

impl EvalReport {
    /// Computes the measures of all arms.
    pub fn new(
        (set, agent, model): (&str, &str, Option<&str>),
        tamma: &str,
        cases: Vec<CaseResult>,
    ) -> Self {
        let arms: BTreeSet<Arm> = cases.iter().map(|case| case.key.arm).collect();
        let arms = arms.into_iter().map(|arm| {
            let own: Vec<&CaseResult> = cases.iter().filter(|case| case.key.arm == arm).collect();
            ArmMeasures::new(arm, &own)
        });
        Self {
            set: set.to_owned(),
            agent: agent.to_owned(),
            model: model.map(str::to_owned),
            tamma: tamma.to_owned(),
            arms: arms.collect(),
            cases,
        }
    }
}

impl ArmMeasures {
    fn new(arm: Arm, cases: &[&CaseResult]) -> Self {
        let count = |outcome| cases.iter().filter(|case| case.outcome == outcome).count();
        let solved = count(CaseOutcome::Solved);
        let mut by_task: BTreeMap<&str, bool> = BTreeMap::new();
        for case in cases {
            let all = by_task.entry(&case.key.task).or_insert(true);
            *all &= case.outcome == CaseOutcome::Solved;
        }
        let usd = cases.iter().filter_map(|case| case.usd).fold(Usd::ZERO, |sum, usd| sum + usd);
        let total =
            |value: fn(&CaseResult) -> u64| cases.iter().map(|case| value(case)).sum::<u64>();
        let gates: Vec<bool> = cases.iter().filter_map(|case| case.first_pass_gates).collect();
        let passed = gates.iter().filter(|passed| **passed).count();
        let files: Vec<_> = cases.iter().filter_map(|case| case.files).collect();
        let sum = |value: fn(&crate::FileListMatch) -> u32| {
            files.iter().map(|it| u64::from(value(it))).sum::<u64>()
        };
        let (cached, input) = (total(|case| case.cached_tokens), total(|case| case.input_tokens));
        Self {
            arm,
            cases: cases.len(),
            solved,
            false_completions: count(CaseOutcome::FalseCompletion),
            unsolved: count(CaseOutcome::Unsolved),
            not_run: count(CaseOutcome::NotRun),
            tasks: by_task.len(),
            solved_every_trial: by_task.values().filter(|all| **all).count(),
            usd,
            // Unknown costs must not look like zero.
            usd_per_solved: if cases.iter().any(|case| case.usd.is_some()) {
                usd.checked_div(wide(solved))
            } else {
                None
            },
            usd_incomplete_cases: cases.iter().filter(|case| case.usd_incomplete).count(),
            seconds_per_solved: total(|case| case.seconds).checked_div(wide(solved)),
            iterations_per_100_cases: (total(|case| u64::from(case.iterations)) * 100)
                .checked_div(wide(cases.len()))
                .unwrap_or_default(),
            first_pass_gate_percent: percent(wide(passed), wide(gates.len())),
            plan_precision_percent: percent(sum(|it| it.both), sum(|it| it.planned)),
            plan_recall_percent: percent(sum(|it| it.both), sum(|it| it.changed)),
            denials: cases.iter().map(|case| case.denials).sum(),
            gate_calls: cases.iter().map(|case| case.gate_calls).sum(),
            questions: cases.iter().map(|case| case.questions).sum(),
            cached_input_percent: percent(cached, cached + input),
        }
    }
}

fn percent(part: u64, whole: u64) -> Option<u64> {
    (part * 100).checked_div(whole)
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::tests::result;

    #[test]
    fn measures_count_solved_and_false_completions_apart() {
        let cases = vec![
            result("a", 1, CaseOutcome::Solved),
            result("a", 2, CaseOutcome::FalseCompletion),
            result("b", 1, CaseOutcome::Solved),
            result("c", 1, CaseOutcome::NotRun),
        ];
        let report = EvalReport::new(("starter", "codex", None), "0.1.0", cases);
        let [arm] = &report.arms[..] else { panic!("one arm") };
        assert_eq!((arm.cases, arm.solved, arm.false_completions, arm.not_run), (4, 2, 1, 1));
        assert_eq!((arm.tasks, arm.solved_every_trial), (3, 1));
        assert_eq!(arm.usd_per_solved, Some(Usd::from_cents(100)));
        assert_eq!(arm.seconds_per_solved, Some(180));
        assert_eq!(arm.iterations_per_100_cases, 200);
        assert_eq!(arm.first_pass_gate_percent, Some(50));
        assert_eq!((arm.plan_precision_percent, arm.plan_recall_percent), (Some(50), Some(100)));
        assert_eq!(arm.cached_input_percent, Some(70));
    }

    #[test]
    fn unknown_costs_are_not_zero_and_nothing_is_divided_by_zero() {
        let mut case = result("a", 1, CaseOutcome::Unsolved);
        case.usd = None;
        let report = EvalReport::new(("starter", "codex", None), "0.1.0", vec![case]);
        assert_eq!(report.arms[0].usd_per_solved, None);
        assert_eq!(report.arms[0].seconds_per_solved, None);
        let none = EvalReport::new(("starter", "codex", None), "0.1.0", Vec::new());
        assert_eq!(none.arms, []);
    }
}
