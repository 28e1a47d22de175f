//! Requests to the server, in the background.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tamma_server::dto::{InboxPage, TaskPage};
use tokio::sync::mpsc;

use super::state::{TopEffect, TopInbox, TopMessage};
use crate::client::{self, Client};

/// Time after which a request has failed.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Number of tasks in a list.
const LIST_LIMIT: &str = "200";

/// Number of lines per request.
const LINE_LIMIT: &str = "200";

/// Runner of effects. Each runs at most once at a time.
pub(super) struct EffectRunner {
    client: Client,
    by: String,
    sender: mpsc::UnboundedSender<(TopEffect, TopMessage)>,
    running: BTreeSet<String>,
}

/// Results of effects.
pub(super) type EffectResults = mpsc::UnboundedReceiver<(TopEffect, TopMessage)>;

impl EffectRunner {
    /// Creates a runner and the receiver of its results. Actions are sent as `by`.
    pub(super) fn new(client: Client, by: String) -> (Self, EffectResults) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self { client, by, sender, running: BTreeSet::new() }, receiver)
    }

    /// Starts an effect, unless the same one is still running.
    pub(super) fn start(&mut self, effect: TopEffect) {
        if !self.running.insert(format!("{effect:?}")) {
            return;
        }
        let (client, by, sender) = (self.client.clone(), self.by.clone(), self.sender.clone());
        tokio::spawn(async move {
            let message = perform(&client, &by, &effect).await;
            // Without a receiver, the program ends.
            let _ = sender.send((effect, message));
        });
    }

    /// Notes that an effect has ended.
    pub(super) fn finish(&mut self, effect: &TopEffect) {
        self.running.remove(&format!("{effect:?}"));
    }
}

async fn perform(client: &Client, by: &str, effect: &TopEffect) -> TopMessage {
    match effect {
        TopEffect::LoadBoard => {
            let query = [("state", "live"), ("limit", LIST_LIMIT)];
            let page: Result<TaskPage, _> = get(client, "/tasks", &query).await;
            TopMessage::Board(page.map(|page| page.tasks))
        }
        TopEffect::LoadInbox => {
            let page: Result<InboxPage, _> = get(client, "/inbox", &[("limit", LIST_LIMIT)]).await;
            TopMessage::Inbox(
                page.map(|page| TopInbox { tasks: page.tasks.tasks, pipelines: page.pipelines }),
            )
        }
        TopEffect::LoadTask(id) => {
            TopMessage::Task(*id, get(client, &format!("/tasks/{id}"), &[]).await.map(Box::new))
        }
        TopEffect::LoadPlan(id) => {
            let path = format!("/tasks/{id}/plan");
            TopMessage::Plan(*id, get(client, &path, &[]).await.map(Box::new))
        }
        TopEffect::LoadChange(id) => {
            let path = format!("/tasks/{id}/diff");
            TopMessage::Change(*id, get(client, &path, &[]).await.map(Box::new))
        }
        TopEffect::LoadLines { task, edge, kinds, text } => {
            let (name, position) = edge.parameter();
            let mut query = vec![(name, position), ("limit", LINE_LIMIT), ("text", text.as_str())];
            if !kinds.is_empty() {
                query.push(("kinds", *kinds));
            }
            let page = get(client, &format!("/tasks/{task}/lines"), &query).await;
            let (edge, filter) = (edge.clone(), (*kinds, text.clone()));
            TopMessage::Lines { task: *task, edge, filter, page }
        }
        TopEffect::Submit(id, action) => {
            let path = format!("/tasks/{id}/actions");
            let request = client.post(&path, by, client::new_id(), action);
            TopMessage::Submitted(match tokio::time::timeout(TIMEOUT, request).await {
                Ok(status) => status.map_err(|error| error.to_string()),
                Err(_) => Err("no response from the server; check the task before you repeat the \
                               action"
                    .to_owned()),
            })
        }
    }
}

async fn get<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    query: &[(&str, &str)],
) -> Result<T, String> {
    match tokio::time::timeout(TIMEOUT, client.get(path, query)).await {
        Ok(response) => response.map_err(|error| error.to_string()),
        Err(_) => Err("no response from the server".to_owned()),
    }
}
