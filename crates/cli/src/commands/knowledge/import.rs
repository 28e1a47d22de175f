//! `tamma knowledge import`: an export, or what a repository already says.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use tamma_core::knowledge::{import, markdown};
use tamma_server::shape::{
    Knowledge, KnowledgeImport, KnowledgeImported, KnowledgeList, NewKnowledge,
};

use crate::client::{self, Asker, Client, Target};
use crate::output::{self, counted};

/// Where repositories keep what they say to agents and people.
const PLACES: [&str; 12] = [
    "AGENTS.md",
    "CLAUDE.md",
    "GEMINI.md",
    "CONTRIBUTING.md",
    ".cursorrules",
    ".github/copilot-instructions.md",
    "clippy.toml",
    ".clippy.toml",
    "pyproject.toml",
    "ruff.toml",
    ".eslintrc.json",
    ".eslintrc",
];

#[derive(Debug, Args)]
pub(in crate::commands) struct Arguments {
    /// The files. Without any, those of the repository here that say how things are done in it.
    files: Vec<PathBuf>,
    /// The project. It can be left out where there is exactly one.
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// Changes nothing, and says what would be proposed.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    asker: Asker,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    client::run(&arguments.target, async {
        let client = Client::new(&arguments.target)?;
        let by = arguments.asker.name()?;
        let files = if arguments.files.is_empty() { here() } else { arguments.files.clone() };
        if files.is_empty() {
            bail!(
                "nothing here says how things are done: no AGENTS.md, CLAUDE.md, CONTRIBUTING.md, \
                 .cursor/rules or lint configuration in this folder. Name a file"
            );
        }
        let mut out = anstream::stdout().lock();
        let mut all = KnowledgeImported::default();
        for file in &files {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("{} cannot be read", file.display()))?;
            let name = file.display().to_string();
            let done = if import::is_source(&name) {
                propose(arguments, &client, &by, (&name, &text), &mut out).await?
            } else {
                let entries = markdown::read(&text)
                    .with_context(|| format!("{name} is not an export of knowledge"))?;
                if arguments.dry_run {
                    writeln!(out, "{name}: {}", counted(entries.len(), "entry"))?;
                    continue;
                }
                let body = KnowledgeImport { entries };
                client.post("/knowledge/import", &by, client::new_id(), &body).await?
            };
            all.added += done.added;
            all.changed += done.changed;
            all.same += done.same;
        }
        if arguments.target.json {
            output::json(&all)?;
        } else if !arguments.dry_run {
            let KnowledgeImported { added, changed, same } = all;
            writeln!(out, "{added} added, {changed} changed, {same} there already.")?;
            if added > 0 {
                writeln!(out, "`tamma knowledge list --status pending` shows what waits for you.")?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// What there is in this folder.
fn here() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        PLACES.iter().map(PathBuf::from).filter(|path| path.is_file()).collect();
    if let Ok(rules) = std::fs::read_dir(Path::new(".cursor/rules")) {
        let mut rules: Vec<_> = rules.flatten().map(|entry| entry.path()).collect();
        rules.sort();
        files.extend(rules.into_iter().filter(|path| path.is_file()));
    }
    files
}

/// Proposes what a file says. What is there already, in whatever status, is not proposed again.
async fn propose(
    arguments: &Arguments,
    client: &Client,
    by: &str,
    (name, text): (&str, &str),
    out: &mut impl std::io::Write,
) -> Result<KnowledgeImported> {
    let known: KnowledgeList = client.get("/knowledge", &[]).await?;
    let mut done = KnowledgeImported::default();
    for proposal in import::proposals(name, text) {
        if known.entries.iter().any(|known| known.entry.text == proposal.text) {
            done.same += 1;
            continue;
        }
        if arguments.dry_run {
            writeln!(out, "{name}:{}: {}", proposal.line, output::plain(&proposal.text))?;
            continue;
        }
        let new = NewKnowledge {
            id: Some(client::new_id()),
            kind: proposal.kind,
            text: proposal.text,
            project: arguments.project.clone(),
            organisation: false,
            globs: proposal.globs,
            task_types: Vec::new(),
            keywords: Vec::new(),
            actions: Vec::new(),
            pattern: proposal.pattern,
            severity: proposal.severity,
            owner: None,
            evidence: vec![format!("file:{name}:{}", proposal.line)],
            expires_at: None,
            imported: true,
        };
        let _: Knowledge = client.post("/knowledge", by, client::new_id(), &new).await?;
        done.added += 1;
    }
    Ok(done)
}
