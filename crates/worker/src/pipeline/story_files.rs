//! Files of a story in its worktree.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tamma_core::pipeline::files::{self, WORKFLOW_DIR};
use tamma_core::pipeline::{PhaseRecord, PipelineRequest, PipelineRun};
use tamma_engine::worktree::Worktree;
use tamma_flow::pipeline::PhaseRequest;
use tokio::fs;

use crate::error::Error;

/// Largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Folder of a story in a worktree.
pub(super) struct StoryFiles {
    root: PathBuf,
    story_path: String,
    story_id: String,
}

impl StoryFiles {
    /// Finds the folder of a story: `{feature}/*/{story}`, or the one that will be created.
    pub(super) async fn locate(worktree: &Worktree, request: &PipelineRequest) -> Self {
        let PipelineRequest { feature_dir, story_id, .. } = request;
        let mut found = Vec::new();
        if let Ok(mut entries) = fs::read_dir(worktree.path().join(feature_dir)).await {
            while let Ok(Some(entry)) = entries.next_entry().await {
                let Ok(name) = entry.file_name().into_string() else { continue };
                let story = entry.path().join(story_id);
                // A link could lead out of the worktree.
                let is_folder = fs::symlink_metadata(&story).await.is_ok_and(|it| it.is_dir());
                if is_folder && entry.file_type().await.is_ok_and(|kind| kind.is_dir()) {
                    found.push(format!("{feature_dir}/{name}/{story_id}"));
                }
            }
        }
        found.sort();
        let default = || format!("{feature_dir}/{}/{story_id}", files::STORIES_DIR);
        let story_path = found.into_iter().next().unwrap_or_else(default);
        let root = worktree.path().to_owned();
        Self { root, story_path, story_id: story_id.clone() }
    }

    /// Opens the folder that the preparation has found.
    pub(super) fn at(worktree: &Worktree, request: &PhaseRequest) -> Result<Self, Error> {
        let missing = || Error::Internal("the story has not been prepared".to_owned());
        let story_path = request.story_path.clone().ok_or_else(missing)?;
        let root = worktree.path().to_owned();
        Ok(Self { root, story_path, story_id: request.run.request.story_id.clone() })
    }

    /// Returns the folder of the story, from the root of the repository.
    pub(super) fn story_path(&self) -> &str {
        &self.story_path
    }

    fn workflow_dir(&self) -> PathBuf {
        self.root.join(&self.story_path).join(WORKFLOW_DIR)
    }

    /// Returns `true` for a file that Tamma replaces before each commit, so that its content is never
    /// that of an agent.
    pub(super) fn is_own_file(&self, path: &str) -> bool {
        let folder = format!("{}/{WORKFLOW_DIR}/", self.story_path);
        let own = [files::AGENT_CONTEXT_FILE, files::STATE_FILE, files::TOKEN_LOG_FILE];
        path.strip_prefix(&folder).is_some_and(|name| own.contains(&name))
    }

    /// Reads the records of phases. A damaged `STATE.md` is rebuilt from the outputs.
    pub(super) async fn read_records(
        &self,
        run: &PipelineRun,
    ) -> Result<BTreeMap<u8, PhaseRecord>, Error> {
        let folder = self.workflow_dir();
        let state = read_text(&folder.join(files::STATE_FILE)).await;
        if let Some(records) = state.as_deref().and_then(|text| files::parse_state(run, text)) {
            return Ok(records);
        }
        let mut outputs = BTreeMap::new();
        if let Ok(mut entries) = fs::read_dir(&folder).await {
            while let Ok(Some(entry)) = entries.next_entry().await {
                let name = entry.file_name().into_string().unwrap_or_default();
                let Some(phase) = files::output_phase(&name) else { continue };
                if let Some(text) = read_text(&entry.path()).await {
                    outputs.insert(phase, text);
                }
            }
        }
        if outputs.is_empty() {
            return Ok(BTreeMap::new());
        }
        tracing::warn!(story = %self.story_id, "rebuilding the damaged state of a story");
        let request = PipelineRequest {
            from: 1,
            to: run.request.definition.last(),
            approve: std::collections::BTreeSet::new(),
            ..run.request.clone()
        };
        let rebuilt = PipelineRun::rebuild(request, &outputs)
            .map_err(|refusal| Error::Internal(refusal.to_string()))?;
        Ok(rebuilt.records)
    }

    /// Writes `AGENT-CONTEXT.md` and `STATE.md`.
    pub(super) async fn write_state(&self, run: &PipelineRun) -> Result<(), Error> {
        self.write(files::AGENT_CONTEXT_FILE, &files::agent_context(run, &self.story_path)).await?;
        self.write(files::STATE_FILE, &files::state(run)).await
    }

    /// Writes the token log.
    pub(super) async fn write_token_log(&self, run: &PipelineRun) -> Result<(), Error> {
        self.write(files::TOKEN_LOG_FILE, &files::token_log(run)).await
    }

    /// Writes the output of a phase.
    pub(super) async fn write_output(&self, phase: u8, text: &str) -> Result<(), Error> {
        self.write(&files::output_file(phase), text).await
    }

    /// Sets the status in the story's own file, if it has one, and returns a line about it.
    pub(super) async fn set_story_status(&self, status: &str) -> Result<String, Error> {
        let name = format!("{}.md", self.story_id);
        let path = self.root.join(&self.story_path).join(&name);
        let changed = read_text(&path).await.and_then(|it| files::set_story_status(&it, status));
        Ok(match changed {
            Some(text) => {
                write_file(&path, &text).await?;
                format!("Set `status: {status}` in {}/{name}.\n", self.story_path)
            }
            None => format!("{}/{name} has no `status` to set.\n", self.story_path),
        })
    }

    async fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let folder = self.workflow_dir();
        // An agent could have replaced a folder by a link that leads out of the worktree.
        for folder in folder.ancestors().take_while(|it| it.starts_with(&self.root)) {
            if fs::symlink_metadata(folder).await.is_ok_and(|it| it.is_symlink()) {
                let folder = folder.display();
                return Err(Error::Internal(format!("`{folder}` is a symbolic link; remove it")));
            }
        }
        fs::create_dir_all(&folder).await.map_err(|error| file_error(&folder, &error))?;
        write_file(&folder.join(name), text).await
    }
}

/// Replaces a file. A link in its place is removed, never followed.
async fn write_file(path: &Path, text: &str) -> Result<(), Error> {
    if fs::symlink_metadata(path).await.is_ok_and(|it| it.is_symlink()) {
        fs::remove_file(path).await.map_err(|error| file_error(path, &error))?;
    }
    fs::write(path, text).await.map_err(|error| file_error(path, &error))
}

/// Reads a regular file of moderate size.
async fn read_text(path: &Path) -> Option<String> {
    let facts = fs::symlink_metadata(path).await.ok()?;
    if !facts.is_file() || facts.len() > MAX_FILE_BYTES {
        return None;
    }
    fs::read_to_string(path).await.ok()
}

fn file_error(path: &Path, error: &std::io::Error) -> Error {
    Error::StoryFile { path: path.to_owned(), reason: error.to_string() }
}
