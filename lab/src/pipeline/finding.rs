//! Findings of a kill, and the rules that judge what the agents' processes did.

use tamma_core::pipeline::{PhaseStatus, PipelineRun, PipelineState};

use super::point::PhasePoint;
use super::project::success_signal;

/// Findings of a kill, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PhaseFindings {
    /// Expected things that are missing.
    pub(crate) lost: Vec<String>,
    /// Work that was done more than once.
    pub(crate) repeated: Vec<String>,
    /// Processes that still run.
    pub(crate) orphaned: Vec<String>,
    /// Runs of agents that the kill interrupted, and that were started again.
    pub(crate) interrupted: usize,
}

/// Processes and lines of one phase, counted outside of Tamma.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PhaseCounts {
    /// Processes of agents.
    pub(crate) started: usize,
    /// Agents that have done the phase.
    pub(crate) done: usize,
    /// Commits with the name of the phase on the branch.
    pub(crate) commits: usize,
}

impl PhaseFindings {
    /// Returns `true` without failures.
    pub(crate) fn is_clean(&self) -> bool {
        self.lost.is_empty() && self.repeated.is_empty() && self.orphaned.is_empty()
    }

    pub(crate) fn add_lost(&mut self, what: impl Into<String>) {
        self.lost.push(what.into());
    }

    pub(crate) fn add_repeated(&mut self, what: impl Into<String>) {
        self.repeated.push(what.into());
    }

    /// Judges a phase that an agent ran. A phase is done once. Only the killed phase can have a further
    /// process, of a run that the kill interrupted.
    pub(crate) fn judge_agents(&mut self, phase: u8, killed: PhasePoint, counts: PhaseCounts) {
        let PhaseCounts { started, done, commits } = counts;
        match done {
            0 => self.add_lost(format!("phase {phase}: no agent has done it")),
            1 => {}
            more => self.add_repeated(format!("phase {phase}: done {more} times")),
        }
        let interrupted = started.saturating_sub(done);
        if phase == killed.phase {
            self.interrupted += interrupted;
        } else if interrupted > 0 {
            self.add_repeated(format!("phase {phase}: {started} agents, {done} ended"));
        }
        self.judge_commits(phase, commits);
    }

    /// Judges the commits of a phase.
    pub(crate) fn judge_commits(&mut self, phase: u8, commits: usize) {
        match commits {
            0 => self.add_lost(format!("phase {phase}: its commit")),
            1 => {}
            more => self.add_repeated(format!("phase {phase}: {more} commits")),
        }
    }

    /// Judges the records of a run that must be complete.
    pub(crate) fn judge_records(&mut self, run: &PipelineRun) {
        if run.state != PipelineState::Complete {
            self.add_lost(format!("the end: the run is {}: {:?}", run.describe_state(), run.state));
        }
        for phase in 1..=run.request.to {
            let (status, signal) = if phase < run.request.from {
                (PhaseStatus::Skipped, None)
            } else {
                (PhaseStatus::Complete, Some(success_signal(phase)))
            };
            let record = run.records.get(&phase);
            if record.map(|it| (it.status, it.signal.clone())) != Some((status, signal)) {
                self.add_lost(format!("the record of phase {phase}: found {record:?}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::point::PhaseMoment;
    use super::*;

    fn judge(phase: u8, started: usize, done: usize) -> PhaseFindings {
        let killed = PhasePoint { phase: 3, moment: PhaseMoment::SavesResult };
        let mut findings = PhaseFindings::default();
        findings.judge_agents(phase, killed, PhaseCounts { started, done, commits: 1 });
        findings
    }

    #[test]
    fn a_phase_that_is_done_once_is_clean() {
        assert_eq!(judge(3, 1, 1), PhaseFindings::default());
        assert_eq!(judge(2, 1, 1), PhaseFindings::default());
    }

    #[test]
    fn a_phase_that_runs_again_after_its_end_is_repeated() {
        assert_eq!(judge(3, 2, 2).repeated, ["phase 3: done 2 times"]);
    }

    #[test]
    fn an_interrupted_run_of_the_killed_phase_is_counted_and_others_are_failures() {
        let here = judge(3, 2, 1);
        assert!(here.is_clean() && here.interrupted == 1);
        assert_eq!(judge(4, 2, 1).repeated, ["phase 4: 2 agents, 1 ended"]);
    }

    #[test]
    fn a_phase_without_an_end_or_a_commit_is_lost() {
        let mut findings = judge(3, 1, 0);
        findings.judge_commits(4, 0);
        findings.judge_commits(5, 2);
        assert_eq!(findings.lost, ["phase 3: no agent has done it", "phase 4: its commit"]);
        assert_eq!(findings.repeated, ["phase 5: 2 commits"]);
    }
}
