//! Temporal server of a measurement. This is the only place that knows which servers there are.

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use strum::Display;
use tamma_testkit::temporal::{ProjectTurns, TemporalLayout};
use tamma_testkit::{Cluster, ClusterBuilder};

/// Number of history shards of a real server, unless another one is chosen.
const SHARDS: u32 = 64;

/// Choice of the Temporal server.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct TemporalArgs {
    /// Temporal server to measure
    #[arg(long, value_name = "KIND", value_enum, default_value_t)]
    server: ServerKind,
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..), help = "Number of history shards of a real server [default: 64]")]
    shards: Option<u32>,
    #[arg(skip)]
    turns: ProjectTurns,
}

/// Kind of Temporal server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Display)]
#[strum(serialize_all = "kebab-case")]
enum ServerKind {
    /// Dev server: one process, one shard, `SQLite`.
    #[default]
    Dev,
    /// Real server: one process, PostgreSQL.
    Real,
    /// Three nodes of a real server on PostgreSQL.
    ThreeNodes,
}

impl TemporalArgs {
    /// Returns the same choice with or without turns of projects in task queues.
    pub(crate) fn with_turns(&self, turns: ProjectTurns) -> Self {
        Self { turns, ..self.clone() }
    }

    /// Adds the server to a cluster.
    pub(crate) fn add_to(&self, cluster: ClusterBuilder) -> Result<ClusterBuilder> {
        let cluster = cluster.project_turns(self.turns);
        match (self.server, self.shards) {
            (ServerKind::Dev, None) => Ok(cluster.private_servers()),
            (ServerKind::Dev, Some(_)) => {
                bail!("the dev server has one shard; use `--server real` with `--shards`")
            }
            (ServerKind::Real, shards) => {
                Ok(cluster.temporal_cluster(TemporalLayout::OneProcess, shards.unwrap_or(SHARDS)))
            }
            (ServerKind::ThreeNodes, shards) => {
                Ok(cluster.temporal_cluster(TemporalLayout::ThreeNodes, shards.unwrap_or(SHARDS)))
            }
        }
    }

    /// Returns the IDs of its main processes.
    pub(crate) fn pids(&self, cluster: &Cluster) -> Result<Vec<u32>> {
        match self.server {
            ServerKind::Dev => {
                Ok(vec![cluster.temporal()?.pid().context("Temporal does not run")?])
            }
            ServerKind::Real | ServerKind::ThreeNodes => Ok(cluster.temporal_cluster()?.pids()),
        }
    }

    /// Describes it for a heading.
    pub(crate) fn describe(&self) -> String {
        match self.server {
            ServerKind::Dev => "Temporal dev server (one shard; SQLite: WAL, synchronous=1; \
                                transferProcessorMaxPollRPS=100; fairness on)"
                .to_owned(),
            ServerKind::Real | ServerKind::ThreeNodes => format!(
                "Temporal, {}, {} shards (its data is in the same PostgreSQL, whose CPU time and \
                 write-ahead log include it; transferProcessorMaxPollRPS=100; fairness on)",
                self.server,
                self.shards.unwrap_or(SHARDS)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_refused_where_there_is_only_one() {
        let arguments = TemporalArgs { shards: Some(4), ..TemporalArgs::default() };
        assert!(arguments.add_to(Cluster::builder()).is_err());
        assert!(TemporalArgs::default().add_to(Cluster::builder()).is_ok());
    }
}
