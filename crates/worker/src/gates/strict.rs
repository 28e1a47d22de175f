//! Gates of a commit that lands as it is: no failure is excused, and nothing runs again.

use tamma_core::gate::judge;
use tamma_core::review::record::{BaselineSource, GateRecord};
use tamma_engine::gate::GateCheckout;
use tokio::time::Instant;

use super::{CheckoutFiles, GateRunner, elapsed_millis};
use crate::error::Error;

impl GateRunner<'_> {
    /// Runs every gate once on the commit. A failed setup is one failed gate.
    pub(crate) async fn run_once(&self) -> Result<Vec<GateRecord>, Error> {
        let checkout =
            self.checkout(GateCheckout::for_task(&self.mirror, self.ctx.task.id)).await?;
        let started = Instant::now();
        let files = CheckoutFiles::Commit(self.commit);
        let runs = match self.run_gates(&checkout, &files, |_, _| true).await {
            Err(Error::Setup(failed)) => {
                return Ok(vec![failed.into_gate_record(elapsed_millis(started))]);
            }
            runs => runs?,
        };
        let mut records = Vec::new();
        for (name, rules) in &self.gates {
            let run = &runs[name];
            let judged = judge(&run.run.result, None, None, &[]);
            records.push(self.gate_record(judged, rules, run, (BaselineSource::NotNeeded, false)));
        }
        Ok(records)
    }
}
