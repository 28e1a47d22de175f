//! Strikes: what is done to a part of the cluster.

use strum::{Display, EnumIter, IntoEnumIterator as _};

use crate::chaos::examination::RunRule;

/// Strike against a part of the cluster. Parts that are killed are restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, EnumIter)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum Strike {
    /// A worker is killed, with the gateway between its agents and their models.
    KillWorker,
    /// All workers are killed.
    KillWorkers,
    /// A server is killed.
    KillServer,
    /// Temporal's frontend is killed, with its system worker.
    KillFrontend,
    /// A node with Temporal's history and matching services is killed.
    KillHistory,
    /// All nodes of Temporal are killed.
    KillTemporal,
    /// PostgreSQL is killed with all its processes.
    KillPostgres,
    /// PostgreSQL is killed, and its standby is promoted.
    FailOver,
    /// All running agents and gates are killed.
    KillAgents,
    /// The models are gone, so that the gateways' calls fail.
    LoseModels,
    /// A worker is killed again and again.
    WorkerStorm,
    /// All servers are killed again and again.
    ServerStorm,
    /// A node of Temporal is killed again and again.
    TemporalStorm,
    /// A worker reaches neither Temporal nor the database.
    IsolateWorker,
    /// A worker's packets to Temporal are lost; those from Temporal arrive.
    LoseRequests,
    /// The database's packets to a worker are lost; those to the database arrive.
    LoseResponses,
    /// The two nodes with Temporal's history cannot reach each other.
    SplitTemporal,
    /// The database's packets are late.
    DelayDatabase,
    /// A worker is frozen until another one has its tasks, and then continues.
    TwoOwners,
    /// A worker's clock is an hour ahead.
    ClockAhead,
    /// A worker's clock is an hour behind.
    ClockBehind,
    /// The disk of a worker is full.
    FullDisk,
    /// A worker gets no more memory.
    MemoryLimit,
    /// The database waits for its disk at each commit.
    SlowDisk,
}

/// Part of the machine that a strike needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StrikeNeed {
    /// Links between hosts that can be cut.
    Cuts,
    /// Links between hosts that can be slowed down.
    Delay,
    /// A clock that a process can be given: libfaketime.
    Clock,
    /// A small file system.
    SmallDisk,
}

/// Tasks that depend on the struck part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victims {
    /// All tasks in flight.
    All,
    /// Tasks with a run on the struck worker.
    OneWorker,
    /// Tasks with a run on any worker.
    Runs,
}

impl Strike {
    /// Returns all strikes, in the order in which they are made.
    pub(crate) fn all() -> Vec<Self> {
        Self::iter().collect()
    }

    /// Returns the strikes of the quick slice: one of each sort that the whole experiment is about.
    pub(crate) fn quick() -> Vec<Self> {
        vec![
            Self::KillWorker,
            Self::KillHistory,
            Self::FailOver,
            Self::IsolateWorker,
            Self::TwoOwners,
        ]
    }

    /// Returns what the strike needs; `None` if it works on every machine.
    pub(crate) fn need(self) -> Option<StrikeNeed> {
        match self {
            Self::IsolateWorker
            | Self::LoseRequests
            | Self::LoseResponses
            | Self::SplitTemporal => Some(StrikeNeed::Cuts),
            Self::DelayDatabase => Some(StrikeNeed::Delay),
            Self::ClockAhead | Self::ClockBehind => Some(StrikeNeed::Clock),
            Self::FullDisk => Some(StrikeNeed::SmallDisk),
            _ => None,
        }
    }

    /// Returns the tasks that depend on the struck part.
    pub(crate) fn victims(self) -> Victims {
        match self {
            Self::KillWorker
            | Self::WorkerStorm
            | Self::IsolateWorker
            | Self::LoseRequests
            | Self::LoseResponses
            | Self::TwoOwners
            | Self::ClockAhead
            | Self::ClockBehind
            | Self::FullDisk
            | Self::MemoryLimit => Victims::OneWorker,
            Self::KillWorkers | Self::KillAgents | Self::LoseModels => Victims::Runs,
            Self::KillServer
            | Self::KillFrontend
            | Self::KillHistory
            | Self::KillTemporal
            | Self::KillPostgres
            | Self::FailOver
            | Self::ServerStorm
            | Self::TemporalStorm
            | Self::SplitTemporal
            | Self::DelayDatabase
            | Self::SlowDisk => Victims::All,
        }
    }

    /// Returns what may happen more than once to a task that was in flight.
    ///
    /// If the heartbeats of a worker do not arrive for longer than the heartbeat timeout, Temporal gives
    /// its jobs to another one, and an agent of each may finish. An agent, a disk or a worker that fails
    /// by itself is noted in the history.
    pub(crate) fn run_rule(self) -> RunRule {
        match self {
            Self::KillServer | Self::ServerStorm => RunRule::Once,
            Self::KillAgents
            | Self::LoseModels
            | Self::ClockAhead
            | Self::ClockBehind
            | Self::FullDisk
            | Self::MemoryLimit => RunRule::HistoryRepeated,
            _ => RunRule::RunsRepeated,
        }
    }

    /// Returns `true` if the strike may end a worker that it does not kill.
    pub(crate) fn may_end_worker(self) -> bool {
        matches!(self, Self::FullDisk | Self::MemoryLimit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_slice_needs_at_most_links_that_can_be_cut() {
        for strike in Strike::quick() {
            assert!(matches!(strike.need(), None | Some(StrikeNeed::Cuts)), "{strike}");
        }
    }
}
