//! Hostile repositories and worktrees: git runs no command of theirs, and hides nothing.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use tamma_engine::worktree::{ChangePatch, Worktree};

use crate::fixture::{Fixture, author, git_in};

/// Returns the file that a command of the repository would create.
fn loot(fixture: &Fixture) -> PathBuf {
    fixture.scratch_path("loot")
}

/// Commits a reference to a submodule at `sub`.
async fn add_submodule(fixture: &Fixture) -> String {
    let commit = fixture.git(&["rev-parse", "HEAD"]).await;
    let entry = format!("160000,{commit},sub");
    fixture.git(&["update-index", "--add", "--cacheinfo", &entry]).await;
    fixture.git(&["commit", "--quiet", "-m", "submodule"]).await;
    commit
}

/// Does everything that a worker does with the files of an agent.
async fn use_worktree(fixture: &Fixture, tree: &Worktree) {
    tree.diff_stat(fixture.base().await).await.unwrap();
    tree.checkpoint().await.unwrap();
    tree.snapshot_commit().await.unwrap();
    let commit = tree.commit_all(1, "Work", &author()).await.unwrap();
    tree.diff(fixture.base().await, commit).await.unwrap();
}

async fn plant_filter(repository: &Path, loot: &Path) {
    fs::write(repository.join(".gitattributes"), "* filter=x\n").unwrap();
    let command = format!("touch '{}'; cat", loot.display());
    for name in ["filter.x.clean", "filter.x.smudge", "core.fsmonitor", "diff.external"] {
        git_in(repository, &["config", name, &command]).await;
    }
}

#[tokio::test]
async fn filter_of_a_planted_submodule_does_not_run() {
    let fixture = Fixture::create().await;
    let commit = add_submodule(&fixture).await;
    let tree = fixture.worktree().await;
    // The agent makes the submodule a repository at the expected commit, so git looks inside.
    let sub = tree.path().join("sub");
    fs::create_dir_all(&sub).unwrap();
    git_in(&sub, &["init", "--quiet"]).await;
    let source = fixture.project().display().to_string();
    git_in(&sub, &["fetch", "--quiet", &source, "main"]).await;
    git_in(&sub, &["reset", "--quiet", &commit]).await;
    plant_filter(&sub, &loot(&fixture)).await;
    fs::write(sub.join("README.md"), "a longer text\n").unwrap();
    let _ = fs::remove_file(loot(&fixture));

    use_worktree(&fixture, &tree).await;
    assert!(!loot(&fixture).exists(), "a filter of the agent ran outside the sandbox");
}

#[tokio::test]
async fn patch_is_complete_despite_gitattributes() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    fs::write(tree.path().join(".gitattributes"), "*.txt -diff\n*.md binary\n").unwrap();
    fs::write(tree.path().join("src/old.txt"), "stolen\n").unwrap();
    fs::write(tree.path().join("README.md"), "hidden\0\n").unwrap();
    let commit = tree.commit_all(1, "Work", &author()).await.unwrap();
    let ChangePatch { text, is_truncated } = tree.diff(fixture.base().await, commit).await.unwrap();
    assert!(text.contains("+stolen") && text.contains("+hidden"), "{text}");
    assert!(!is_truncated);
}

#[tokio::test]
async fn pictures_are_binary_and_programs_are_not() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    fs::write(tree.path().join("logo.png"), "\u{89}PNG\0\0pixels\n").unwrap();
    fs::write(tree.path().join("text.png"), "only text\n").unwrap();
    fs::write(tree.path().join("run.sh"), "#!/bin/sh\n\0rm -rf /\n").unwrap();
    let commit = tree.commit_all(1, "Work", &author()).await.unwrap();
    let base = fixture.base().await;
    let text = tree.diff(base, commit).await.unwrap().text;
    assert!(text.contains("Binary files /dev/null and b/logo.png differ"), "{text}");
    assert!(text.contains("+only text") && text.contains("rm -rf /"), "{text}");
    let touched = tree.touched_files(base, commit).await.unwrap();
    let added = tree.added_lines(&touched).await.unwrap();
    let names: Vec<_> = added.keys().map(String::as_str).collect();
    assert_eq!(names, ["run.sh", "text.png"]);
}

#[tokio::test]
async fn large_patch_is_marked_as_truncated() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    for name in ["a.txt", "b.txt", "c.txt"] {
        fs::write(tree.path().join(name), "twenty bytes of text\n".repeat(300_000)).unwrap();
    }
    let base = fixture.base().await;
    let commit = tree.commit_all(1, "Work", &author()).await.unwrap();
    let patch = tree.diff(base, commit).await.unwrap();
    assert!(patch.is_truncated && patch.text.len() <= 16 * 1024 * 1024);
    // A single large file is left out.
    for name in ["a.txt", "b.txt"] {
        fs::remove_file(tree.path().join(name)).unwrap();
    }
    fs::write(tree.path().join("c.txt"), "twenty bytes of text\n".repeat(500_000)).unwrap();
    fs::write(tree.path().join("small.txt"), "small\n").unwrap();
    let commit = tree.commit_all(2, "Work", &author()).await.unwrap();
    let patch = tree.diff(base, commit).await.unwrap();
    assert!(patch.is_truncated && patch.text.contains("+small") && patch.text.len() < 1_000);
}

#[tokio::test]
async fn file_that_git_cannot_convert_is_named() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    fs::write(tree.path().join(".gitattributes"), "*.x working-tree-encoding=nothing\n").unwrap();
    for name in ["a.txt", "b.x", "c.txt"] {
        fs::write(tree.path().join(name), "text\n").unwrap();
    }
    let error = tree.commit_all(1, "Work", &author()).await.unwrap_err();
    assert!(error.is_caused_by_change() && error.to_string().contains("`b.x`"), "{error}");
    let saved = tree.checkpoint().await.unwrap().commit.expect("a checkpoint");
    let changed = tree.changed_files(fixture.base().await, saved).await.unwrap();
    assert_eq!(changed.into_keys().collect::<Vec<_>>(), [".gitattributes", "a.txt", "c.txt"]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_is_not_the_fault_of_a_file() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    fs::write(tree.path().join(".gitattributes"), "*.x working-tree-encoding=nothing\n").unwrap();
    fs::write(tree.path().join("b.x"), "text\n").unwrap();
    let git_dir = git_in(tree.path(), &["rev-parse", "--absolute-git-dir"]).await;
    // What Tamma writes to see whether there is space does not fit.
    let fill = || {
        let partial = Path::new(git_dir.trim()).join("tamma-disk-check.partial");
        std::os::unix::fs::symlink("/dev/full", partial).unwrap();
    };
    fill();
    let error = tree.commit_all(1, "Work", &author()).await.unwrap_err();
    assert!(error.is_disk_full(), "{error}");
    // A checkpoint without the file would look complete.
    fill();
    let error = tree.checkpoint().await.unwrap_err();
    assert!(error.is_disk_full(), "{error}");
    let error = tree.commit_all(1, "Work", &author()).await.unwrap_err();
    assert!(error.is_caused_by_change(), "{error}");
    assert!(tree.checkpoint().await.unwrap().commit.is_some());
}

#[tokio::test]
async fn file_that_is_too_large_is_refused_and_the_rest_is_saved() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    fs::write(tree.path().join("small.txt"), "small\n").unwrap();
    fs::File::create(tree.path().join("huge.bin")).unwrap().set_len(101_000_000).unwrap();
    let error = tree.commit_all(1, "Work", &author()).await.unwrap_err();
    assert!(error.is_caused_by_change(), "{error}");
    assert_eq!(tree.head().await.unwrap(), fixture.base().await);
    let saved = tree.checkpoint().await.unwrap().commit.expect("a checkpoint");
    let changed = tree.changed_files(fixture.base().await, saved).await.unwrap();
    assert_eq!(changed.into_keys().collect::<Vec<_>>(), ["small.txt"]);
}

#[tokio::test]
async fn files_of_every_kind_are_committed_as_they_are() {
    let fixture = Fixture::create().await;
    let commit = add_submodule(&fixture).await;
    let tree = fixture.worktree().await;
    let path = tree.path();
    // A file becomes a folder, a folder a link, and a name is not UTF-8.
    fs::remove_file(path.join("README.md")).unwrap();
    fs::create_dir(path.join("README.md")).unwrap();
    fs::write(path.join("README.md/inside.txt"), "in\n").unwrap();
    fs::remove_dir_all(path.join("src")).unwrap();
    std::os::unix::fs::symlink("README.md", path.join("src")).unwrap();
    fs::write(path.join(OsStr::from_bytes(b"bad\xff")), "odd\n").unwrap();
    let made = tree.commit_all(1, "Work", &author()).await.unwrap();
    let listed = git_in(path, &["ls-tree", "-r", &made.to_string()]).await;
    let listed: Vec<_> = listed.lines().map(|line| &line[..6]).zip(listed.lines()).collect();
    let has = |mode: &str, name: &str| {
        listed.iter().any(|(it, line)| *it == mode && line.ends_with(name))
    };
    assert!(has("100644", "\tREADME.md/inside.txt") && has("120000", "\tsrc"), "{listed:?}");
    assert!(has("100644", "\"bad\\377\""), "{listed:?}");
    assert!(has("160000", &format!("{commit}\tsub")), "the submodule stays: {listed:?}");
    assert_eq!(listed.len(), 4, "{listed:?}");
    assert_eq!(tree.commit_all(2, "Again", &author()).await.unwrap(), made);
}
