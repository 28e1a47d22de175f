//! Commits that follow a merge, in real repositories.

use std::collections::BTreeSet;

use tamma_core::ids::{CommitId, ProjectId};
use tamma_engine::git::Git;
use tamma_engine::mirror::Mirror;
use tamma_testkit::repository::Repository;
use tempfile::TempDir;

/// Repository of a team, with our mirror.
struct MirroredRepository {
    repository: Repository,
    mirror: Mirror,
    _data: TempDir,
}

fn numbered(lines: &[&str]) -> String {
    format!("{}\n", lines.join("\n"))
}

impl MirroredRepository {
    /// Creates a repository with `app.txt` on its branch `main`.
    async fn create() -> Self {
        let repository = Repository::new().unwrap();
        repository.write("app.txt", &numbered(&["one", "two", "three"])).unwrap();
        repository.commit("app").unwrap();
        let data = tempfile::tempdir().unwrap();
        let project = ProjectId("0192a000-0000-7000-8000-000000000002".parse().unwrap());
        let source = repository.path().display().to_string().parse().unwrap();
        let git = Git::find("git").await.unwrap();
        let mirror = Mirror::open(git, data.path(), project, &source).await.unwrap();
        Self { repository, mirror, _data: data }
    }

    fn commit(&self, lines: &[&str], message: &str) -> CommitId {
        self.repository.write("app.txt", &numbered(lines)).unwrap();
        self.repository.commit(message).unwrap().parse().unwrap()
    }

    fn git(&self, call: &[&str]) -> String {
        self.repository.git(call).unwrap()
    }
}

#[tokio::test]
async fn only_a_commit_on_the_same_lines_changes_the_merged_ones() {
    let team = MirroredRepository::create().await;
    // The change: two new lines, on a branch that is merged.
    team.git(&["checkout", "--quiet", "-b", "work"]);
    let own = team.commit(&["one", "new 1", "new 2", "two", "three"], "Add lines");
    team.git(&["checkout", "--quiet", "main"]);
    team.git(&["merge", "--quiet", "--no-ff", "-m", "Merge work", "work"]);
    let merged: CommitId = team.git(&["rev-parse", "HEAD"]).parse().unwrap();

    // Lines move, and only some of the later commits touch those of the change.
    let before = ["zero", "one", "new 1", "new 2", "two", "three"];
    let moved = team.commit(&before, "Fix: a line above");
    let other = ["zero", "one", "new 1", "new 2", "two", "tres"];
    let other = team.commit(&other, "Fix another line");
    let inside = ["zero", "one", "new 1", "check", "new 2", "two", "tres"];
    let inside = team.commit(&inside, "Fix between");
    let changed = ["zero", "one", "new 1", "check", "new two", "two", "tres"];
    let changed = team.commit(&changed, "Fix a new line");
    team.mirror.fetch().await.unwrap();
    let tip = team.mirror.resolve("main").await.unwrap();
    assert_eq!(tip, changed);

    let landed = team.mirror.landed_commits(merged, Some(own)).await.unwrap();
    assert_eq!(landed, BTreeSet::from([own, merged]));
    let later = team.mirror.commits_after(merged, tip).await.unwrap();
    let listed: Vec<_> = later.iter().map(|it| (it.commit, it.message.trim())).collect();
    assert_eq!(
        listed,
        [
            (changed, "Fix a new line"),
            (inside, "Fix between"),
            (other, "Fix another line"),
            (moved, "Fix: a line above"),
        ]
    );
    assert!(later.iter().all(|it| !it.is_merge && it.author == "Ann"));
    for (commit, expected) in [(moved, false), (other, false), (inside, true), (changed, true)] {
        let found = team.mirror.changes_lines_of(commit, &landed).await.unwrap();
        assert_eq!(found, expected, "{commit}");
    }
}

#[tokio::test]
async fn the_commits_of_a_rebased_pull_request_are_found_and_those_before_it_are_not() {
    let team = MirroredRepository::create().await;
    team.git(&["checkout", "--quiet", "-b", "work"]);
    team.commit(&["one", "a", "two", "three"], "Add a");
    let head = team.commit(&["one", "a", "b", "two", "three"], "Add b");
    team.git(&["checkout", "--quiet", "main"]);
    team.repository.write("other.txt", "other\n").unwrap();
    let before: CommitId = team.repository.commit("Another change").unwrap().parse().unwrap();
    team.git(&["cherry-pick", "main..work"]);
    let merged: CommitId = team.git(&["rev-parse", "HEAD"]).parse().unwrap();
    let first: CommitId = team.git(&["rev-parse", "HEAD^"]).parse().unwrap();
    team.mirror.fetch().await.unwrap();
    let landed = team.mirror.landed_commits(merged, Some(head)).await.unwrap();
    assert_eq!(landed, BTreeSet::from([first, merged]));
    assert_eq!(team.mirror.first_parent(first).await.unwrap(), Some(before));

    // A squash is one commit, whatever the branch had.
    team.git(&["checkout", "--quiet", "-b", "more"]);
    team.commit(&["one", "a", "b", "c", "two", "three"], "Add c");
    let head = team.commit(&["one", "a", "b", "c", "d", "two", "three"], "Add d");
    team.git(&["checkout", "--quiet", "main"]);
    team.git(&["merge", "--quiet", "--squash", "more"]);
    let squashed: CommitId = team.repository.commit("Add c and d (#2)").unwrap().parse().unwrap();
    team.mirror.fetch().await.unwrap();
    let landed = team.mirror.landed_commits(squashed, Some(head)).await.unwrap();
    assert_eq!(landed, BTreeSet::from([squashed]));
}
