//! Forges for tests: a real Gitea with its runner, a GitHub and a GitLab of our own, and a
//! proxy that loses and holds requests.
//!
//! Gitea and its runner are built by [`BUILD_COMMAND`], and are optional: [`gitea_folder`] tells whether
//! they are there. The fakes always work. All listen on loopback addresses only.

mod fake_github;
mod fake_gitlab;
mod git_backend;
mod gitea;
mod github_answers;
mod proxy;

use std::path::PathBuf;

pub use fake_github::{Exchange, FakeGithub};
pub use fake_gitlab::FakeGitlab;
pub use gitea::GiteaServer;
pub use proxy::{ForgeProxy, HoldEnd, ProxyFault, RequestPattern, WebhookFault};

use crate::programs::tools_folder;

/// Version of Gitea, as in `.ci/tools`.
const GITEA_VERSION: &str = "1.26.4";

/// Version of Gitea's runner, as in `.ci/tools`.
const RUNNER_VERSION: &str = "1.0.8";

/// Version of GitHub's API description, as in `.ci/tools`.
const OPENAPI_VERSION: &str = "23.0.2";

/// Version of GitHub's examples of webhooks, as in `.ci/tools`.
const EXAMPLES_VERSION: &str = "7.6.1";

/// Command that builds Gitea and its runner.
pub const BUILD_COMMAND: &str = "TAMMA_TOOLS=forge bash .ci/tools";

/// Command that builds the style sheets and scripts of Gitea's pages, for screenshots.
pub const PAGES_COMMAND: &str = "TAMMA_TOOLS=forge-pages bash .ci/tools";

/// Returns the folder of Gitea, if it was built.
pub fn gitea_folder() -> Option<PathBuf> {
    let folder = tools_folder().join(format!("gitea-{GITEA_VERSION}"));
    folder.join("gitea").is_file().then_some(folder)
}

/// Returns `true` if the pages of Gitea have their style sheets and scripts. Its API does not need them.
pub fn has_gitea_pages() -> bool {
    gitea_folder().is_some_and(|it| it.join("public/assets/.vite/manifest.json").is_file())
}

/// Returns the program of Gitea's runner, if it was built.
pub fn gitea_runner() -> Option<PathBuf> {
    let program = tools_folder().join(format!("gitea-runner-{RUNNER_VERSION}/gitea-runner"));
    program.is_file().then_some(program)
}

/// Returns the file with GitHub's API description, if it was installed.
pub fn github_openapi() -> Option<PathBuf> {
    let file = tools_folder().join(format!("github-openapi-{OPENAPI_VERSION}.json"));
    file.is_file().then_some(file)
}

/// Returns the file with GitHub's examples of webhooks, if it was installed.
pub fn github_webhooks() -> Option<PathBuf> {
    let file = tools_folder().join(format!("github-webhooks-{EXAMPLES_VERSION}.json"));
    file.is_file().then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_that_are_installed() {
        let tools = include_str!("../../../.ci/tools");
        for line in [
            format!("code.gitea.io/gitea {GITEA_VERSION} "),
            format!("gitea.com/gitea/runner {RUNNER_VERSION} "),
            format!("@octokit/openapi {OPENAPI_VERSION} "),
            format!("@octokit/webhooks-examples {EXAMPLES_VERSION} "),
        ] {
            assert!(tools.contains(&line), "`.ci/tools` does not install `{line}`");
        }
    }
}
