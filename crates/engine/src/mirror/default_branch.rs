//! Default branch of a project's repository.

use super::{Error, Mirror};
use crate::git::{QUERY_LIMIT, remote_arguments};

impl Mirror {
    /// Returns the branch that `HEAD` of the project's repository points to.
    pub async fn default_branch(&self) -> Result<String, Error> {
        let call = ["ls-remote", "--quiet", "--symref"].into_iter();
        let call = call.chain(remote_arguments(&self.source, ["HEAD"]));
        let listed = self.remote(QUERY_LIMIT).run(call).await?;
        let branch = listed.lines().find_map(|line| {
            let name = line.strip_prefix("ref: refs/heads/")?;
            name.split('\t').next()
        });
        let unknown =
            || Error::Unknown { revision: "HEAD".to_owned(), repository: self.source.to_string() };
        Ok(branch.ok_or_else(unknown)?.to_owned())
    }
}
