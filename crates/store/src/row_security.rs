//! Reads under row-level security: connections that see the rows of some organisations only.
//!
//! Each set of organisations has its own connections, which name the role and the organisations when
//! they are opened. So no statement pays for it, and no statement can be sent without it. Only the sets
//! that were used last have connections.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgConnection, PgPool};
use tamma_core::ids::OrganisationId;

use crate::connection::{LIST_OPTIONS, Store};
use crate::error::Result;

/// Role that reads for people. Migration 32 creates it.
const ROLE: &str = "tamma_tenant";

/// Maximum size of each of the two pools of a set of organisations.
const CONNECTIONS: u32 = 5;

/// Maximum number of sets of organisations with pools.
const MAX_SETS: usize = 8;

/// Time after which an idle connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// Pools of the sets of organisations that were used last.
#[derive(Debug)]
pub(crate) struct TenantPools {
    pool: PgPoolOptions,
    options: PgConnectOptions,
    /// In the order of their last use.
    pools: Mutex<Vec<(BTreeSet<OrganisationId>, ReadPools)>>,
}

#[derive(Debug, Clone)]
struct ReadPools {
    reads: PgPool,
    lists: PgPool,
}

impl TenantPools {
    /// Returns the pools of a set of organisations. Their connections are opened when needed.
    ///
    /// Pools that take the place of others do not close them: a request may still use them. They close
    /// with its handle.
    fn pools_of(&self, organisations: &BTreeSet<OrganisationId>) -> ReadPools {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = pools.iter().position(|(set, _)| set == organisations) {
            let known = pools.remove(index);
            let found = known.1.clone();
            pools.push(known);
            return found;
        }
        if pools.len() >= MAX_SETS {
            pools.remove(0);
        }
        let options = tenant_options(&self.options, organisations);
        let lists = options.clone().options(LIST_OPTIONS);
        let new = ReadPools {
            reads: self.pool.clone().connect_lazy_with(options),
            lists: self.pool.clone().connect_lazy_with(lists),
        };
        pools.push((organisations.clone(), new.clone()));
        new
    }

    /// Waits until all connections are returned, then closes them.
    pub(crate) async fn close(&self) {
        let pools = std::mem::take(&mut *self.pools.lock().unwrap_or_else(PoisonError::into_inner));
        for (_, ReadPools { reads, lists }) in pools {
            reads.close().await;
            lists.close().await;
        }
    }
}

/// Returns the options of connections that read for some organisations.
fn tenant_options(
    options: &PgConnectOptions,
    organisations: &BTreeSet<OrganisationId>,
) -> PgConnectOptions {
    let ids: Vec<String> = organisations.iter().map(ToString::to_string).collect();
    let ids = ids.join(",");
    options.clone().options([("role", ROLE), ("tamma.organisations", ids.as_str())])
}

/// Returns `true` if a connection has the role that its options name. A connection pooler may have
/// ignored them.
async fn has_tenant_role(connection: &mut PgConnection) -> sqlx::Result<bool> {
    let role = sqlx::query_scalar!(r#"SELECT current_user::text AS "role!""#);
    Ok(role.fetch_one(connection).await? == ROLE)
}

/// Returns `true` if connections can have the role. Members of a role may lack the right to use it.
async fn can_use_role(options: &PgConnectOptions) -> sqlx::Result<bool> {
    let options = tenant_options(options, &BTreeSet::new());
    let mut connection = match PgConnection::connect_with(&options).await {
        Ok(connection) => connection,
        // insufficient_privilege
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42501") => {
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let has_role = has_tenant_role(&mut connection).await?;
    connection.close().await?;
    Ok(has_role)
}

impl Store {
    /// Returns a handle for [`Store::within`]; `None` if the database has no role for it, because the
    /// owner of the tables could not create one, or cannot use it.
    pub async fn with_row_security(&self) -> Result<Option<Self>> {
        let is_usable = sqlx::query_scalar!(
            r#"SELECT coalesce(
                   bool_or(
                       pg_has_role(current_user, oid, 'MEMBER')
                       AND has_table_privilege(oid, 'tasks', 'SELECT')
                   ), false
               ) AS "is_usable!"
               FROM pg_roles WHERE rolname::text = $1"#,
            ROLE,
        )
        .fetch_one(&self.steps)
        .await?;
        let options = PgConnectOptions::clone(&self.steps.connect_options());
        if !is_usable || !can_use_role(&options).await? {
            return Ok(None);
        }
        let pool = self.steps.options().clone();
        let connections = pool.get_max_connections().min(CONNECTIONS);
        let pool = pool.max_connections(connections).min_connections(0).idle_timeout(IDLE_TIMEOUT);
        // A connection of the owner would see all organisations.
        let pool = pool.after_connect(|connection, _| {
            Box::pin(async move {
                if has_tenant_role(connection).await? {
                    return Ok(());
                }
                Err(sqlx::Error::Protocol(format!("the connection does not have the role {ROLE}")))
            })
        });
        let tenants = TenantPools { pool, options, pools: Mutex::default() };
        Ok(Some(Self { tenants: Some(Arc::new(tenants)), ..self.clone() }))
    }

    /// Returns `true` if [`Store::within`] has an effect.
    pub fn has_row_security(&self) -> bool {
        self.tenants.is_some()
    }

    /// Returns a handle that reads rows of these organisations only, whatever a statement asks for;
    /// `None` for all. Writes, and what no organisation owns, are not restricted.
    #[must_use]
    pub fn within(&self, organisations: Option<&BTreeSet<OrganisationId>>) -> Self {
        let (Some(tenants), Some(organisations)) = (&self.tenants, organisations) else {
            return self.clone();
        };
        let ReadPools { reads, lists } = tenants.pools_of(organisations);
        Self { reads, lists, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn only_the_sets_that_were_used_last_have_pools() {
        let options = PgConnectOptions::new_without_pgpass();
        let tenants = TenantPools { pool: PgPoolOptions::new(), options, pools: Mutex::default() };
        let set = |number: u128| BTreeSet::from([OrganisationId(Uuid::from_u128(number))]);
        let sets = || -> Vec<_> {
            let pools = tenants.pools.lock().expect("not poisoned");
            pools.iter().map(|(set, _)| set.clone()).collect()
        };
        let first = tenants.pools_of(&set(0));
        for number in 1..100 {
            tenants.pools_of(&set(number));
            // One that is used again and again stays.
            tenants.pools_of(&set(1));
        }
        assert_eq!(sets().len(), MAX_SETS);
        assert_eq!(sets().last(), Some(&set(1)));
        assert!(sets().contains(&set(99)) && !sets().contains(&set(0)));
        assert!(!first.reads.is_closed(), "a request may still use it");
        tenants.close().await;
        assert!(sets().is_empty());
    }
}
