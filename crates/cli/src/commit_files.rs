//! Files of commits, for the pages of a change. They are read from the mirrors of this machine.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use tamma_core::repository_address::RepositoryAddress;
use tamma_engine::git::Git;
use tamma_engine::mirror::Mirror;
use tamma_server::{CommitFile, CommitFileReader};

/// Returns a reader of the mirrors in a worker's data folder.
pub(crate) fn reader(data: &Path) -> CommitFileReader {
    let data = data.to_owned();
    Arc::new(move |file| {
        let data = data.clone();
        Box::pin(async move {
            let read = read(&data, &file).await;
            // The page shows the change without the file.
            read.inspect_err(|error| tracing::warn!(%error, "failed to read a file of a commit"))
                .ok()
                .flatten()
        })
    })
}

async fn read(data: &Path, file: &CommitFile) -> Result<Option<Vec<u8>>> {
    // A mirror is never created for a page.
    if !Mirror::exists(data, file.project).await {
        return Ok(None);
    }
    let source: RepositoryAddress = file.repository.parse()?;
    let mirror = Mirror::open(Git::find("git").await?, data, file.project, &source).await?;
    Ok(mirror.local_file(file.commit, &file.path, file.max_bytes).await?)
}
