//! Arguments of `run_gates`, and the service behind it.

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;

/// Gates that an agent can run on its own files. Errors are returned to the model for correction.
pub trait AgentGates: Send + Sync {
    /// Starts gates on the agent's current files, and returns a text with the ID of the run. An
    /// empty list means all gates.
    fn start(&self, gates: Vec<String>) -> BoxFuture<'static, Result<String, String>>;

    /// Waits a bounded time, and returns the results or the progress of a run.
    fn result(&self, id: String) -> BoxFuture<'static, Result<String, String>>;
}

/// Arguments of `run_gates`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GateCallArgs {
    /// `start` begins a gate run on your current files. `result` waits for one and returns its
    /// results.
    action: GateCallAction,
    /// For `start`: names of the gates to run, as `get_task` lists them. Leave it out to run all.
    #[serde(default)]
    gates: Vec<String>,
    /// For `result`: the ID that `start` returned, such as `g1`.
    #[serde(default)]
    id: Option<String>,
}

/// Action of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum GateCallAction {
    Start,
    Result,
}

impl GateCallArgs {
    /// Calls the service.
    pub(super) async fn call(self, gates: &dyn AgentGates) -> Result<String, Vec<String>> {
        let called = match (self.action, self.id) {
            (GateCallAction::Start, None) => gates.start(self.gates),
            (GateCallAction::Start, Some(_)) => {
                return Err(vec![
                    "`start` takes no `id`: call {\"action\": \"start\"}, or {\"action\": \
                     \"result\", \"id\": …} to get the results of a run"
                        .to_owned(),
                ]);
            }
            (GateCallAction::Result, Some(id)) => gates.result(id),
            (GateCallAction::Result, None) => {
                return Err(vec![
                    "`result` needs the `id` that `start` returned, such as {\"action\": \
                     \"result\", \"id\": \"g1\"}"
                        .to_owned(),
                ]);
            }
        };
        called.await.map_err(|error| vec![error])
    }
}
