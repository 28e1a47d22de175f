//! Temporal namespaces that a worker works in: that of the installation, and those of organisations.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
use tamma_flow::NAMESPACE;
use tamma_store::Store;
use temporalio_client::{Client, NamespacedClient as _};
use tokio::time::MissedTickBehavior;

use crate::error::Error;

/// Returns a client for another namespace, on the same connection; `None` for that of the installation.
pub(crate) fn client_in(client: &Client, namespace: Option<&str>) -> Client {
    let mut client = client.clone();
    namespace.unwrap_or(NAMESPACE).clone_into(&mut client.options_mut().namespace);
    client
}

/// Returns the namespace of a client; `None` for that of the installation.
pub(crate) fn namespace_of(client: &Client) -> Option<String> {
    Some(client.namespace()).filter(|namespace| namespace != NAMESPACE)
}

/// Works in the namespace of the client, and in those of organisations, until `work` has ended in all of
/// them. Looks for new ones in an interval.
pub(crate) async fn work_in_namespaces<F>(
    store: &Store,
    client: &Client,
    interval: Duration,
    work: impl Fn(Client) -> F,
) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>>,
{
    let mut known = BTreeSet::from([client.namespace()]);
    let mut working = FuturesUnordered::new();
    working.push(work(client.clone()));
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut result = Ok(());
    loop {
        let listed = async {
            ticks.tick().await;
            store.namespaces().await
        };
        // Workflows run here too, so nothing else may be awaited.
        tokio::select! {
            ended = working.next() => match ended {
                Some(ended) => result = result.and(ended),
                None => return result,
            },
            listed = listed => match listed {
                Ok(namespaces) => for namespace in namespaces {
                    if known.insert(namespace.clone()) {
                        tracing::info!(namespace, "working in the namespace of an organisation");
                        working.push(work(client_in(client, Some(&namespace))));
                    }
                },
                Err(error) => {
                    tracing::warn!(%error, "failed to list the namespaces of organisations");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tamma_core::ids::{Name, OrganisationId};
    use tamma_testkit::postgres::TestDatabase;
    use tamma_testkit::temporal;
    use tokio_util::sync::CancellationToken;
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn a_worker_works_in_each_namespace_once_and_in_new_ones_later() {
        let database = TestDatabase::fresh().await.unwrap();
        let store = database.store().await.unwrap();
        let address = temporal::server_address().unwrap();
        let client = temporal::connect(&address).await.unwrap();
        let grace: Name = "Grace".parse().unwrap();
        let add = async |number: u128, name: &str, namespace: Option<&str>| {
            let id = OrganisationId(Uuid::from_u128(number));
            store.add_organisation(id, (name, namespace), &grace).await.unwrap();
        };
        add(7, "acme", Some("tamma-acme")).await;
        add(8, "shared", None).await;
        let (stop, seen) = (CancellationToken::new(), RefCell::new(Vec::new()));
        let work = |client: Client| {
            seen.borrow_mut().push(namespace_of(&client));
            let stop = stop.clone();
            async move {
                stop.cancelled().await;
                Ok(())
            }
        };
        let body = async {
            let reached = async |count: usize| {
                while seen.borrow().len() < count {
                    tokio::task::yield_now().await;
                }
            };
            reached(2).await;
            add(9, "globex", Some("tamma-globex")).await;
            reached(3).await;
            stop.cancel();
        };
        let interval = Duration::from_millis(20);
        let working = work_in_namespaces(&store, &client, interval, work);
        let (worked, ()) = tokio::join!(working, body);
        worked.unwrap();
        let expected = [None, Some("tamma-acme"), Some("tamma-globex")];
        assert_eq!(seen.into_inner(), expected.map(|it| it.map(str::to_owned)));
    }
}
