//! Runs the gates on one exact commit. Only their exit codes count.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use tamma_core::ids::CommitId;
use tamma_core::review::{Fingerprint, gate as judged};
use tamma_core::risk::Level;
use tamma_core::task_loop::{Gates, Outcome};
use tamma_engine::gate::{self, Gate};
use tamma_flow::port::Answer;

use super::{Activities, Told, Work, now};
use crate::error::Error;

impl Activities {
    pub(super) async fn test(
        &self,
        work: &Work,
        commit: CommitId,
        risk: Level,
    ) -> Result<Told, Error> {
        let site = self.site(work).await?;
        self.records.take_over(work.run(), self.config.patience.stop).await?;
        let worktree = self.worktree(work, &site).await?;
        let mut gates = Gates::default();
        let (mut report, mut failing) = (String::new(), Vec::new());
        // Which gates there are is pinned with the task; how they are run, too.
        for (name, rules) in work.rules.gates_at(risk) {
            let gate = Gate {
                name: name.to_owned(),
                kind: rules.kind,
                program: PathBuf::from("/bin/sh"),
                args: vec!["-c".to_owned(), rules.command.clone()],
                env: crate::runs::inherited(&self.config.environment, &crate::runs::PLAIN),
                time_limit: Duration::from_secs(u64::from(rules.timeout_seconds)),
            };
            let which = (work.run(), now());
            let ended = gate.run(&worktree, commit, which, &self.records, &work.call.stop).await;
            let ran = match ended {
                Ok(ran) => ran,
                Err(gate::Error::Cancelled) => return Err(Error::Stopped),
                Err(error) => return Err(error.into()),
            };
            self.pass("gate ended")?;
            if judged::classify(&ran.result, None, None).counts() {
                gates.failed += 1;
                gates.security_critical |= rules.kind == judged::Kind::Security;
                failing.push(name);
                let code =
                    ran.code.map_or("no exit code".to_owned(), |code| format!("exit {code}"));
                let _ = write!(
                    report,
                    "## Gate `{name}` failed ({code})\n\n    $ {}\n\n```\n{}\n```\n\n",
                    rules.command,
                    ran.output.trim_end()
                );
            } else {
                gates.passed += 1;
            }
        }
        let mut told = Told { answer: Answer::ended(Outcome::Interrupted), report: None };
        if gates.failed > 0 {
            let touched = worktree.touched(work.base()?, commit).await?;
            let diff = worktree.diff(work.base()?, commit).await?;
            let files = touched.keys().map(String::as_str);
            gates.fingerprint = Fingerprint::of(files, failing, &report, &diff);
            told.report = Some(report);
        }
        told.answer = Answer::ended(Outcome::Tested(gates));
        Ok(told)
    }
}
