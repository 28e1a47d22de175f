//! Turns: who may begin a run, in a pool of workers that share projects and providers.
//!
//! A run has a place of its project and one of its provider for as long as it lasts, where the
//! rules limit them. The places are leases in the store: they are renewed while the run lives, given
//! back when it ends, and free by themselves when the worker dies.

use std::time::Duration;

use chrono::TimeDelta;
use tamma_core::task_loop::Timestamp;
use tamma_store::{Lease, Store};
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::hands::{Activities, Work, now};

/// How long a place is kept without a sign of life.
const LEASE: Duration = Duration::from_secs(30);

/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(10);

/// The first and the longest pause between two looks for a free place.
const LOOK: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Whether a run may begin.
pub(crate) enum Turn {
    /// It may, for as long as this lives.
    Came(Place),
    /// Nobody may ask the provider until then.
    Quota {
        /// Until when.
        until: Timestamp,
    },
}

/// The places that a run has. Dropping it gives them back.
pub(crate) struct Place {
    /// Nothing where no rule limits anything.
    held: Option<(Store, String, CancellationToken)>,
}

impl Activities {
    /// Waits until a run may begin: the provider is not held, and there is a place of the project
    /// and of the provider. Says at once where the provider is held.
    pub(crate) async fn turn(&self, work: &Work, provider: &str) -> Result<Turn, Error> {
        let engines = &work.rules.engines;
        let project = work.call.errand.diary.project.to_string();
        let mut wanted = Vec::new();
        if let Some(limit) = engines.per_project {
            wanted.push(((Lease::Project, project.as_str()), u32::from(limit)));
        }
        if let Some(limit) = engines.per_provider.get(provider) {
            wanted.push(((Lease::Provider, provider), u32::from(limit.get())));
        }
        // An attempt at a job is the only one of its number.
        let holder = work.run().to_string();
        let mut pause = LOOK.0;
        loop {
            if let Some(until) = self.store.held(provider, now()).await? {
                self.give_back(&wanted, &holder).await?;
                return Ok(Turn::Quota { until });
            }
            if self.take_all(&wanted, &holder).await? {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LOOK.1),
                () = work.call.stop.cancelled() => return Err(Error::Stopped),
            }
        }
        if wanted.is_empty() {
            return Ok(Turn::Came(Place { held: None }));
        }
        let over = CancellationToken::new();
        tokio::spawn(keep(self.store.clone(), holder.clone(), over.clone()));
        Ok(Turn::Came(Place { held: Some((self.store.clone(), holder, over)) }))
    }

    /// Takes all places or none: who has one and waits for another keeps it from those who do not.
    async fn take_all(&self, wanted: &[((Lease, &str), u32)], holder: &str) -> Result<bool, Error> {
        for (key, limit) in wanted {
            let at = now();
            if !self.store.acquire(*key, holder, *limit, (at, later(at))).await? {
                self.give_back(wanted, holder).await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn give_back(&self, wanted: &[((Lease, &str), u32)], holder: &str) -> Result<(), Error> {
        if wanted.is_empty() { Ok(()) } else { Ok(self.store.release(holder).await?) }
    }
}

fn later(at: Timestamp) -> Timestamp {
    at + TimeDelta::from_std(LEASE).unwrap_or_default()
}

/// Renews the places of a run until it is over.
async fn keep(store: Store, holder: String, over: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(RENEW) => {}
            () = over.cancelled() => return,
        }
        if let Err(error) = store.renew(&holder, later(now())).await {
            tracing::warn!(%error, "the place of a run is not renewed yet");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((store, holder, over)) = self.held.take() else { return };
        over.cancel();
        // Where there is no runtime any more, the places are free when their time is over.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = store.release(&holder).await {
                    tracing::warn!(%error, "the place of a run is free only when its time is over");
                }
            });
        }
    }
}
