//! Points of a story at which a component is killed.

use strum::{Display, EnumIter, EnumString, IntoEnumIterator as _};

use crate::support::components::Victim;

/// Number of the last phase.
pub(crate) const LAST: u8 = 6;

/// Moment of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, EnumIter, EnumString)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum PhaseMoment {
    /// The phase waits for a person at its gate.
    Asks,
    /// Its agent works.
    Works,
    /// Its agent has ended, and the checkpoint of its work is being pushed.
    SavesWork,
    /// Its agent has ended, and the transaction that saves the result is open.
    SavesResult,
    /// The result is saved, and the transaction that records the phase is open.
    Records,
    /// The run has ended, and its branch is being pushed.
    Delivers,
}

/// Point of a story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PhasePoint {
    /// Number of the phase.
    pub(crate) phase: u8,
    pub(crate) moment: PhaseMoment,
}

impl PhasePoint {
    /// Returns all points, in the order of a story. The last phase has no agent.
    pub(crate) fn all() -> Vec<Self> {
        let is_possible = |point: &Self| match point.moment {
            PhaseMoment::Works | PhaseMoment::SavesWork => point.phase < LAST,
            PhaseMoment::Delivers => point.phase == LAST,
            PhaseMoment::Asks | PhaseMoment::SavesResult | PhaseMoment::Records => true,
        };
        let of_phase = |phase| PhaseMoment::iter().map(move |moment| Self { phase, moment });
        (1..=LAST).flat_map(of_phase).filter(is_possible).collect()
    }

    /// Returns the first and last phase of the story's run: the phase and its neighbours.
    pub(crate) fn range(self) -> (u8, u8) {
        ((self.phase - 1).max(1), (self.phase + 1).min(LAST))
    }

    /// Returns the name of the database hold; `None` if the point is held elsewhere.
    pub(crate) fn database_hold(self) -> Option<String> {
        match self.moment {
            PhaseMoment::SavesResult => Some(format!("answers phase {}", self.phase)),
            PhaseMoment::Records if self.phase == LAST => Some("pipelines complete".to_owned()),
            PhaseMoment::Records => Some(format!("pipelines running {}", self.phase + 1)),
            PhaseMoment::Asks
            | PhaseMoment::Works
            | PhaseMoment::SavesWork
            | PhaseMoment::Delivers => None,
        }
    }
}

impl std::fmt::Display for PhasePoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&format!("phase {}: {}", self.phase, self.moment))
    }
}

/// Returns all kills: each victim at each point.
pub(crate) fn every_kill() -> Vec<(PhasePoint, Victim)> {
    let at = |point| Victim::iter().map(move |victim| (point, victim));
    PhasePoint::all().into_iter().flat_map(at).collect()
}

/// Returns the kills of the quick slice: each victim at least once, each phase once, and the worker at
/// the moments between the end of an agent and the saved result.
pub(crate) fn quick_kills() -> Vec<(PhasePoint, Victim)> {
    use PhaseMoment::{Asks, Delivers, Records, SavesResult, SavesWork, Works};
    let selected = [
        (1, Asks, Victim::Temporal),
        (2, SavesWork, Victim::Worker),
        (3, Works, Victim::Worker),
        (4, SavesResult, Victim::Worker),
        (5, Records, Victim::Postgres),
        (6, Delivers, Victim::Server),
    ];
    let kill = |(phase, moment, victim)| (PhasePoint { phase, moment }, victim);
    selected.map(kill).into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use strum::EnumCount as _;

    use super::*;

    #[test]
    fn each_component_is_killed_in_each_phase() {
        let all = every_kill();
        for phase in 1..=LAST {
            for victim in Victim::iter() {
                let is_here =
                    |kill: &&(PhasePoint, Victim)| kill.0.phase == phase && kill.1 == victim;
                assert!(all.iter().filter(is_here).count() >= 4, "{victim} in phase {phase}");
            }
        }
        assert_eq!(all.len(), (5 * 5 + 4) * Victim::COUNT);
    }

    #[test]
    fn the_quick_slice_is_a_part_of_all_kills_with_every_phase_and_victim() {
        let (all, quick) = (every_kill(), quick_kills());
        assert!(quick.iter().all(|kill| all.contains(kill)));
        let phases: BTreeSet<_> = quick.iter().map(|(point, _)| point.phase).collect();
        assert_eq!(phases, (1..=LAST).collect());
        for victim in Victim::iter() {
            assert!(quick.iter().any(|(_, killed)| *killed == victim), "{victim}");
        }
    }

    #[test]
    fn a_run_has_the_neighbours_of_the_phase() {
        let range = |phase| PhasePoint { phase, moment: PhaseMoment::Works }.range();
        assert_eq!([range(1), range(3), range(6)], [(1, 2), (2, 4), (5, 6)]);
    }
}
