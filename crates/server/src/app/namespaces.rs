//! Clients for the namespaces that workflows are in.

use tamma_core::ids::ProjectId;
use temporalio_client::Client;
use uuid::Uuid;

use super::{App, Error};
use crate::temporal_namespace::client_in;

impl App {
    /// Returns the client for the workflow of a task or pipeline.
    pub(crate) async fn workflow_client(&self, id: Uuid) -> Result<Client, Error> {
        let namespace = self.store.workflow_namespace(id).await?;
        Ok(client_in(&self.temporal, namespace.as_deref()))
    }

    /// Returns the client that starts the workflow of a task or pipeline, in the namespace of the
    /// organisation that owns the project. One that was started before stays where it is.
    pub(super) async fn place_workflow(
        &self,
        id: Uuid,
        project: ProjectId,
    ) -> Result<Client, Error> {
        let namespace = self.store.place_workflow(id, project).await?;
        Ok(client_in(&self.temporal, namespace.as_deref()))
    }

    /// Returns a client for each namespace: that of the installation, then those of organisations.
    pub(crate) async fn namespace_clients(&self) -> Result<Vec<Client>, Error> {
        let mut clients = vec![client_in(&self.temporal, None)];
        for namespace in self.store.namespaces().await? {
            clients.push(client_in(&self.temporal, Some(&namespace)));
        }
        Ok(clients)
    }
}
