//! Counts that the metrics page shows.
//!
//! They read every history entry of the period, which takes seconds with a million tasks. Counts that took
//! long are kept for people who can read the same projects, and counted again in the background.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::TimeDelta;
use tamma_core::access::{AccessRights, ProjectScope};
use tamma_core::aftercare::{Calibration, calibrate};
use tamma_core::ids::{OrganisationId, ProjectId};
use tamma_core::metrics::Metrics;
use tamma_core::state::State;
use tamma_core::task_loop::Timestamp;
use tamma_store::{DailySpend, SpendItem, Store};
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::JoinHandle;

use crate::app::{Error, error_chain};
use crate::clock;

/// Number of points per metric.
const TREND_POINTS: u32 = 10;

/// Number of tasks listed by cost.
const TOP_TASKS: u32 = 8;

/// Duration from which counts are kept.
const LONG: TimeDelta = TimeDelta::milliseconds(500);

/// Counts are not counted again for this many times as long as they took, but not for longer than
/// [`MAX_KEPT`].
const KEPT_FACTOR: i32 = 60;

/// Longest time for which counts are not counted again.
const MAX_KEPT: TimeDelta = TimeDelta::minutes(30);

/// Time for which outdated counts are shown while they are counted again.
const OUTDATED: TimeDelta = TimeDelta::hours(1);

/// Time until the next try, if counting again failed.
const RETRY: TimeDelta = TimeDelta::minutes(1);

/// Number of counts that are kept; beyond it, the oldest ones are forgotten.
const MAX_PAGES: usize = 64;

/// Number of pages that are counted at the same time. Each needs a connection for seconds.
const MAX_COUNTING: usize = 2;

/// Page of a period, and whose rows it counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CountsKey {
    scope: ProjectScope,
    organisations: Option<BTreeSet<OrganisationId>>,
    project: Option<ProjectId>,
    days: u32,
}

impl CountsKey {
    /// Key for somebody with these rights. `project` is `None` for all of their projects.
    pub(super) fn new(rights: &AccessRights, project: Option<ProjectId>, days: u32) -> Self {
        let organisations = rights.organisations().cloned();
        Self { scope: rights.scope(), organisations, project, days }
    }
}

/// Counts of one period.
#[derive(Debug)]
pub(super) struct PageCounts {
    /// End of the period.
    pub(super) at: Timestamp,
    /// Time that counting took.
    took: TimeDelta,
    pub(super) spent: Vec<DailySpend>,
    pub(super) by_job: Vec<SpendItem>,
    pub(super) costliest: Vec<SpendItem>,
    pub(super) by_state: BTreeMap<State, u64>,
    pub(super) overall: Metrics,
    /// Metrics of each part of the period, with its start.
    pub(super) parts: Vec<(Timestamp, Metrics)>,
    pub(super) aftercare: Calibration,
}

impl PageCounts {
    async fn load(store: &Store, key: &CountsKey) -> Result<Self, Error> {
        let (project, days, at) = (key.project, key.days, clock::now());
        let since = at - TimeDelta::days(days.into());
        let step = TimeDelta::minutes(i64::from(days) * 24 * 60 / i64::from(TREND_POINTS));
        let mut parts = Vec::new();
        for part in 0..TREND_POINTS {
            let from = since + step * i32::try_from(part).unwrap_or_default();
            let until = if part + 1 == TREND_POINTS { None } else { Some(from + step) };
            parts.push((from, store.metrics(project, from, until).await?));
        }
        let counts = Self {
            at,
            took: TimeDelta::zero(),
            spent: store.spend_by_day(project, since).await?,
            by_job: store.spend_by_job(project, since).await?,
            costliest: store.costliest_tasks(project, since, TOP_TASKS).await?,
            by_state: store.count_by_state(project).await?,
            overall: store.metrics(project, since, None).await?,
            parts,
            aftercare: calibrate(&store.merged_changes(project, since).await?),
        };
        Ok(Self { took: clock::now() - at, ..counts })
    }

    /// Returns `true` if there is nothing to show yet.
    pub(super) fn is_empty(&self) -> bool {
        self.overall.ended == 0 && self.spent.is_empty()
    }

    /// Returns `true` if they are kept. The first figures must appear at once, so empty counts are not.
    pub(super) fn is_kept(&self) -> bool {
        self.took >= LONG && !self.is_empty()
    }
}

/// Counts of the metrics page that took long.
#[derive(Debug, Clone)]
pub(in crate::web) struct MetricsCache {
    pages: Arc<Mutex<BTreeMap<CountsKey, CachedPage>>>,
    permits: Arc<Semaphore>,
}

impl Default for MetricsCache {
    fn default() -> Self {
        Self { pages: Arc::default(), permits: Arc::new(Semaphore::new(MAX_COUNTING)) }
    }
}

#[derive(Debug, Default)]
struct CachedPage {
    kept: Option<KeptCounts>,
    /// Set while they are counted.
    counting: Option<CountsCell>,
}

#[derive(Debug)]
struct KeptCounts {
    counts: Arc<PageCounts>,
    /// Time from which they are counted again.
    until: Timestamp,
    /// Time from which they are not shown any more.
    expires: Timestamp,
}

/// Request that counts a page. Dropping it without an end counts as a failure.
#[derive(Debug)]
struct Counting<'a> {
    cache: &'a MetricsCache,
    key: &'a CountsKey,
    cell: &'a CountsCell,
}

impl Counting<'_> {
    fn end(&self, counts: Option<&Arc<PageCounts>>) {
        self.cache.end(self.key, self.cell, counts, clock::now());
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.end(None);
    }
}

/// Counts for all who wait for them; `None` if counting failed.
type CountsCell = Arc<OnceCell<Option<Arc<PageCounts>>>>;

/// Counts that are kept for a page.
#[derive(Debug)]
enum KeptPage {
    /// Nothing, or only counts that are too old.
    Missing,
    Current(Arc<PageCounts>),
    /// The counts can be shown, and the caller must count again.
    Outdated(Arc<PageCounts>),
}

impl MetricsCache {
    /// Returns kept counts, or counts.
    pub(super) async fn counts(
        &self,
        store: &Store,
        key: CountsKey,
    ) -> Result<Arc<PageCounts>, Error> {
        match self.kept(&key, clock::now()) {
            KeptPage::Current(counts) => Ok(counts),
            KeptPage::Outdated(counts) => {
                let counting = self.count(store, key);
                tokio::spawn(async move {
                    if let Ok(Err(error)) = counting.await {
                        tracing::warn!(error = error_chain(&error), "failed to count metrics");
                    }
                });
                Ok(counts)
            }
            KeptPage::Missing => {
                let counted = self.count(store, key).await;
                counted.map_err(|error| Error::Internal(error.into()))?
            }
        }
    }

    /// Counts in a task of its own, which goes on if nobody waits any more. Requests for the same page share
    /// one result.
    fn count(&self, store: &Store, key: CountsKey) -> JoinHandle<Result<Arc<PageCounts>, Error>> {
        let cell = self.begin(&key);
        let (cache, store) = (self.clone(), store.clone());
        tokio::spawn(async move {
            let counting = Counting { cache: &cache, key: &key, cell: &cell };
            let mut failure = None;
            let load = async {
                let permit = cache.permits.acquire().await;
                let loaded = PageCounts::load(&store, &key).await;
                drop(permit);
                match loaded {
                    Ok(counts) => Some(Arc::new(counts)),
                    Err(error) => {
                        failure = Some(error);
                        None
                    }
                }
            };
            let counted = cell.get_or_init(|| load).await.clone();
            counting.end(counted.as_ref());
            counted.ok_or_else(|| {
                failure.unwrap_or_else(|| Error::Internal("counting metrics failed".into()))
            })
        })
    }

    fn kept(&self, key: &CountsKey, now: Timestamp) -> KeptPage {
        let pages = self.lock();
        let Some(CachedPage { kept: Some(kept), counting }) = pages.get(key) else {
            return KeptPage::Missing;
        };
        let counts = Arc::clone(&kept.counts);
        // A clock that was set back must not keep them for longer.
        if now < counts.at || now >= kept.expires {
            KeptPage::Missing
        } else if now < kept.until || counting.is_some() {
            KeptPage::Current(counts)
        } else {
            KeptPage::Outdated(counts)
        }
    }

    /// Returns the cell of the requests that count a page now.
    fn begin(&self, key: &CountsKey) -> CountsCell {
        let mut pages = self.lock();
        let page = pages.entry(key.clone()).or_default();
        Arc::clone(page.counting.get_or_insert_default())
    }

    /// Keeps counts that took long. `None` means that counting failed.
    fn end(
        &self,
        key: &CountsKey,
        cell: &CountsCell,
        counts: Option<&Arc<PageCounts>>,
        now: Timestamp,
    ) {
        let mut pages = self.lock();
        let Some(page) = pages.get_mut(key) else { return };
        // Another request that waited for the same counts was here first.
        if page.counting.take_if(|counting| Arc::ptr_eq(counting, cell)).is_none() {
            return;
        }
        match (counts, &mut page.kept) {
            (Some(counts), kept) => {
                let until = now + (counts.took * KEPT_FACTOR).min(MAX_KEPT);
                let expires = until + OUTDATED;
                *kept = counts.is_kept().then(|| KeptCounts {
                    counts: Arc::clone(counts),
                    until,
                    expires,
                });
            }
            (None, kept) => {
                kept.take_if(|kept| now >= kept.expires);
                if let Some(kept) = kept {
                    kept.until = now + RETRY;
                }
            }
        }
        if page.kept.is_none() {
            pages.remove(key);
        }
        while pages.len() > MAX_PAGES {
            let ages = pages
                .iter()
                .filter(|(_, page)| page.counting.is_none())
                .filter_map(|(key, page)| Some((page.kept.as_ref()?.counts.at, key)));
            let Some(oldest) = ages.min().map(|(_, key)| key.clone()) else { return };
            pages.remove(&oldest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<CountsKey, CachedPage>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    fn at(second: i64) -> Timestamp {
        DateTime::from_timestamp(second, 0).expect("a time")
    }

    fn key(days: u32) -> CountsKey {
        CountsKey::new(&AccessRights::Operator, None, days)
    }

    fn counted(second: i64, took: TimeDelta) -> Arc<PageCounts> {
        Arc::new(PageCounts {
            at: at(second),
            took,
            spent: Vec::new(),
            by_job: Vec::new(),
            costliest: Vec::new(),
            by_state: BTreeMap::new(),
            overall: Metrics { ended: 1, ..Metrics::default() },
            parts: Vec::new(),
            aftercare: Calibration::default(),
        })
    }

    /// Counts that a page took two seconds for.
    fn keep(cache: &MetricsCache, key: &CountsKey, second: i64) {
        let cell = cache.begin(key);
        let counts = counted(second, TimeDelta::seconds(2));
        cache.end(key, &cell, Some(&counts), at(second + 2));
    }

    #[test]
    fn quick_and_empty_counts_are_not_kept() {
        let quick = counted(0, TimeDelta::milliseconds(499));
        let empty = PageCounts {
            overall: Metrics::default(),
            ..Arc::into_inner(counted(0, TimeDelta::seconds(2))).expect("one owner")
        };
        for counts in [quick, Arc::new(empty)] {
            let cache = MetricsCache::default();
            let cell = cache.begin(&key(30));
            cache.end(&key(30), &cell, Some(&counts), at(1));
            assert!(matches!(cache.kept(&key(30), at(1)), KeptPage::Missing));
            assert!(cache.lock().is_empty());
        }
    }

    #[test]
    fn counts_that_took_long_are_kept_sixty_times_as_long_and_then_counted_once() {
        let cache = MetricsCache::default();
        keep(&cache, &key(30), 0);
        assert!(matches!(cache.kept(&key(30), at(121)), KeptPage::Current(_)));
        assert!(matches!(cache.kept(&key(30), at(122)), KeptPage::Outdated(_)));
        let cell = cache.begin(&key(30));
        // Another request, while they are counted again.
        assert!(matches!(cache.kept(&key(30), at(123)), KeptPage::Current(_)));
        let newer = counted(122, TimeDelta::seconds(2));
        cache.end(&key(30), &cell, Some(&newer), at(124));
        let KeptPage::Current(counts) = cache.kept(&key(30), at(125)) else {
            panic!("new counts are kept");
        };
        assert_eq!(counts.at, at(122));
    }

    #[test]
    fn requests_for_the_same_page_share_one_count() {
        let cache = MetricsCache::default();
        let (first, second) = (cache.begin(&key(30)), cache.begin(&key(30)));
        assert!(Arc::ptr_eq(&first, &second));
        cache.end(&key(30), &first, Some(&counted(0, TimeDelta::seconds(2))), at(2));
        let next = cache.begin(&key(30));
        // The second request ends while a new count is under way.
        cache.end(&key(30), &second, Some(&counted(0, TimeDelta::seconds(2))), at(200));
        assert!(Arc::ptr_eq(&next, &cache.begin(&key(30))));
    }

    #[test]
    fn a_failed_count_keeps_the_last_one_and_is_tried_again_after_a_minute() {
        let cache = MetricsCache::default();
        keep(&cache, &key(30), 0);
        let cell = cache.begin(&key(30));
        cache.end(&key(30), &cell, None, at(130));
        assert!(matches!(cache.kept(&key(30), at(189)), KeptPage::Current(_)));
        assert!(matches!(cache.kept(&key(30), at(190)), KeptPage::Outdated(_)));
        let cell = cache.begin(&key(7));
        cache.end(&key(7), &cell, None, at(130));
        assert_eq!(cache.lock().len(), 1);
        // No number of failures shows them for longer.
        let cell = cache.begin(&key(30));
        cache.end(&key(30), &cell, None, at(122 + 3599));
        assert!(matches!(cache.kept(&key(30), at(122 + 3600)), KeptPage::Missing));
        let cell = cache.begin(&key(30));
        cache.end(&key(30), &cell, None, at(122 + 3601));
        assert!(cache.lock().is_empty());
    }

    #[test]
    fn counts_are_shown_for_at_most_an_hour_after_they_are_outdated() {
        let cache = MetricsCache::default();
        keep(&cache, &key(30), 1000);
        assert!(matches!(cache.kept(&key(30), at(1122 + 3599)), KeptPage::Outdated(_)));
        assert!(matches!(cache.kept(&key(30), at(1122 + 3600)), KeptPage::Missing));
        // A clock that was set back.
        assert!(matches!(cache.kept(&key(30), at(999)), KeptPage::Missing));
    }

    #[test]
    fn people_who_read_other_projects_get_other_counts() {
        let cache = MetricsCache::default();
        keep(&cache, &key(30), 0);
        let none = CountsKey { scope: ProjectScope::Only([].into()), ..key(30) };
        let elsewhere = CountsKey { organisations: Some([].into()), ..key(30) };
        for other in [none, elsewhere, key(7)] {
            assert!(matches!(cache.kept(&other, at(3)), KeptPage::Missing), "{other:?}");
        }
    }

    #[test]
    fn the_number_of_kept_counts_is_limited() {
        let cache = MetricsCache::default();
        for days in 0..100 {
            keep(&cache, &key(days), days.into());
        }
        assert_eq!(cache.lock().len(), MAX_PAGES);
        assert!(matches!(cache.kept(&key(0), at(101)), KeptPage::Missing));
        assert!(matches!(cache.kept(&key(99), at(101)), KeptPage::Current(_)));
    }
}
