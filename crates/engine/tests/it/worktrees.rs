//! Worktrees: nothing is lost, and nothing is done twice.

use std::collections::BTreeMap;
use std::fs;

use tamma_core::plan::Action;
use tamma_engine::delivery::{self, Delivered, branch_to_source};
use tamma_engine::mirror::{Error, branch};
use tamma_engine::worktree::Worktree;

use crate::stage::{Stage, author, git_in};

#[tokio::test]
async fn opening_twice_is_opening_once() {
    let stage = Stage::set().await;
    let first = stage.worktree().await;
    fs::write(first.path().join("src/new.txt"), "not committed\n").unwrap();
    let second = stage.worktree().await;
    assert_eq!(first.path(), second.path());
    assert_eq!(fs::read_to_string(second.path().join("src/new.txt")).unwrap(), "not committed\n");
    assert_eq!(second.head().await.unwrap(), stage.base().await);
    let on = git_in(second.path(), &["symbolic-ref", "--short", "HEAD"]).await;
    assert_eq!(on, branch(stage.task));
}

#[tokio::test]
async fn two_at_once_open_the_same_worktree() {
    let stage = Stage::set().await;
    let (first, second) = tokio::join!(stage.worktree(), stage.worktree());
    assert_eq!(first.path(), second.path());
    assert_eq!(git_in(first.path(), &["status", "--porcelain"]).await, "");
}

#[tokio::test]
async fn opening_goes_on_from_wherever_it_was_interrupted() {
    let stage = Stage::set().await;
    let mirror = stage.mirror().await;
    let base = stage.base().await;
    let worktrees = stage.data().join("worktrees");
    let name = stage.task.to_string();
    let unfinished = worktrees.join("new").join(&name);
    let in_mirror =
        stage.data().join("mirrors/0192a000-0000-7000-8000-000000000002.git/worktrees").join(&name);

    // Killed after the branch was made.
    let mirror_path = in_mirror.parent().unwrap().parent().unwrap().to_owned();
    let reference = format!("refs/heads/{}", branch(stage.task));
    git_in(&mirror_path, &["update-ref", &reference, &base.to_string()]).await;
    let tree = Worktree::open(&mirror, stage.task, base).await.unwrap();
    tree.remove(true).await.unwrap();

    // Killed in the middle of the checkout: git leaves its folder locked, half of the files there.
    let add = unfinished.display().to_string();
    git_in(&mirror_path, &["worktree", "add", "--quiet", &add, &branch(stage.task)]).await;
    fs::write(in_mirror.join("locked"), "initializing").unwrap();
    fs::remove_file(unfinished.join("README.md")).unwrap();
    let tree = Worktree::open(&mirror, stage.task, base).await.unwrap();
    assert_eq!(git_in(tree.path(), &["status", "--porcelain"]).await, "");
    tree.remove(true).await.unwrap();

    // Killed after the folder got its name, before the links were mended; and a git of an earlier
    // run was killed while it wrote.
    git_in(&mirror_path, &["worktree", "add", "--quiet", &add, &branch(stage.task)]).await;
    fs::rename(&unfinished, worktrees.join(&name)).unwrap();
    fs::write(in_mirror.join("index.lock"), "").unwrap();
    let tree = Worktree::open(&mirror, stage.task, base).await.unwrap();
    fs::write(tree.path().join("new.txt"), "new\n").unwrap();
    let commit = tree.commit_all(1, "Add a file", &author()).await.unwrap();
    assert_ne!(commit, base);
    assert_eq!(git_in(tree.path(), &["status", "--porcelain"]).await, "");
}

#[tokio::test]
async fn a_base_that_the_project_does_not_have_is_named() {
    let stage = Stage::set().await;
    let nowhere = "1234567890123456789012345678901234567890".parse().unwrap();
    let error = Worktree::open(&stage.mirror().await, stage.task, nowhere).await.unwrap_err();
    let Error::Unknown { revision, .. } = error else { panic!("{error}") };
    assert_eq!(revision, nowhere.to_string());
}

#[tokio::test]
async fn a_base_that_came_after_the_mirror_is_fetched() {
    let stage = Stage::set().await;
    let mirror = stage.mirror().await;
    stage.git(&["commit", "--quiet", "--allow-empty", "-m", "second"]).await;
    let tree = Worktree::open(&mirror, stage.task, stage.base().await).await.unwrap();
    assert_eq!(tree.head().await.unwrap(), stage.base().await);
    assert_eq!(mirror.resolve("main").await.unwrap(), stage.base().await);
}

#[tokio::test]
async fn a_ticket_is_committed_once() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    let base = stage.base().await;
    assert_eq!(tree.commit_all(1, "Nothing", &author()).await.unwrap(), base);

    fs::write(tree.path().join("new.txt"), "one\n").unwrap();
    let commit = tree.commit_all(1, "Add a file", &author()).await.unwrap();
    assert_eq!(tree.commit_all(1, "Add a file", &author()).await.unwrap(), commit);
    let body = git_in(tree.path(), &["log", "-1", "--format=%an|%cn|%B"]).await;
    assert_eq!(body, format!("Ann|Tamma|Add a file\n\nTamma-Run: {}/1", stage.task));

    // The same ticket again with other files: its commit is replaced, none is added.
    fs::write(tree.path().join("new.txt"), "two\n").unwrap();
    tree.commit_all(1, "Add a file", &author()).await.unwrap();
    let count = ["rev-list", "--count", "HEAD"];
    assert_eq!(git_in(tree.path(), &count).await, "2");

    fs::remove_file(tree.path().join("new.txt")).unwrap();
    tree.commit_all(2, "Remove it", &author()).await.unwrap();
    assert_eq!(git_in(tree.path(), &count).await, "3");
    assert_eq!(git_in(tree.path(), &["status", "--porcelain"]).await, "");
}

#[tokio::test]
async fn a_commit_that_was_interrupted_before_its_end_is_not_made_again() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    fs::write(tree.path().join("new.txt"), "one\n").unwrap();
    let commit = tree.commit_all(1, "Add a file", &author()).await.unwrap();
    // As after a kill between moving the branch and writing the index.
    git_in(tree.path(), &["read-tree", &stage.base().await.to_string()]).await;
    assert_ne!(git_in(tree.path(), &["status", "--porcelain"]).await, "");
    assert_eq!(tree.commit_all(1, "Add a file", &author()).await.unwrap(), commit);
    assert_eq!(git_in(tree.path(), &["status", "--porcelain"]).await, "");
}

#[tokio::test]
async fn what_an_agent_did_to_git_does_not_keep_its_work_out() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    let path = tree.path();
    // It left the branch, committed there, hid a file from git and set a hook that refuses.
    git_in(path, &["checkout", "--quiet", "--detach"]).await;
    fs::write(path.join("a.txt"), "a\n").unwrap();
    git_in(path, &["add", "--all"]).await;
    git_in(path, &["commit", "--quiet", "-m", "mine"]).await;
    git_in(path, &["update-index", "--skip-worktree", "README.md"]).await;
    fs::write(path.join("README.md"), "changed\n").unwrap();
    let hooks = git_in(path, &["rev-parse", "--path-format=absolute", "--git-path", "hooks"]).await;
    fs::create_dir_all(&hooks).unwrap();
    fs::write(format!("{hooks}/reference-transaction"), "#!/bin/sh\nexit 1\n").unwrap();
    let run = tokio::process::Command::new("chmod")
        .args(["+x", &format!("{hooks}/reference-transaction")])
        .status();
    assert!(run.await.unwrap().success());

    let commit = tree.commit_all(1, "All of it", &author()).await.unwrap();
    assert_eq!(tree.head().await.unwrap(), commit);
    let touched = tree.diff_stat(stage.base().await).await.unwrap();
    let expected = [("README.md", Action::Modify), ("a.txt", Action::Create)];
    assert_eq!(touched, expected.map(|(path, action)| (path.to_owned(), action)).into());
    let show = ["show", &format!("{commit}:README.md")];
    assert_eq!(git_in(path, &show).await, "changed");
}

#[tokio::test]
async fn files_of_a_repository_that_an_agent_made_inside_are_kept_as_files() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    let inner = tree.path().join("vendor/inner thing");
    fs::create_dir_all(inner.join("deeper")).unwrap();
    for (folder, commit) in [(inner.clone(), true), (inner.join("deeper"), false)] {
        git_in(&folder, &["init", "--quiet"]).await;
        fs::write(folder.join("file.txt"), "inside\n").unwrap();
        if commit {
            fs::write(folder.join(".gitignore"), "ignored.txt\n").unwrap();
            fs::write(folder.join("ignored.txt"), "noise\n").unwrap();
            git_in(&folder, &["add", "--all", "--", "file.txt", ".gitignore"]).await;
            git_in(&folder, &["commit", "--quiet", "-m", "inner"]).await;
        }
    }
    let paths = |prefix: &str| {
        let names = ["", "deeper/"].map(|folder| format!("{prefix}{folder}file.txt"));
        names.into_iter().chain([format!("{prefix}.gitignore")])
    };
    let expected: BTreeMap<_, _> =
        paths("vendor/inner thing/").map(|path| (path, Action::Create)).collect();
    assert_eq!(tree.diff_stat(stage.base().await).await.unwrap(), expected);
    let commit = tree.commit_all(1, "With an inner one", &author()).await.unwrap();
    assert_eq!(tree.commit_all(2, "Again", &author()).await.unwrap(), commit);
    assert_eq!(tree.diff_stat(stage.base().await).await.unwrap(), expected);
    assert_eq!(tree.remove(true).await.unwrap().commit, None, "all of it is committed");
}

#[tokio::test]
async fn the_diff_has_every_file_committed_or_not() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    fs::write(tree.path().join("committed.txt"), "x\n").unwrap();
    tree.commit_all(1, "One", &author()).await.unwrap();
    fs::write(tree.path().join("README.md"), "changed\n").unwrap();
    fs::rename(tree.path().join("src/old.txt"), tree.path().join("src/new name é.txt")).unwrap();
    let touched = tree.diff_stat(stage.base().await).await.unwrap();
    let expected = BTreeMap::from(
        [
            ("README.md", Action::Modify),
            ("committed.txt", Action::Create),
            ("src/new name é.txt", Action::Create),
            ("src/old.txt", Action::Delete),
        ]
        .map(|(path, action)| (path.to_owned(), action)),
    );
    assert_eq!(touched, expected);
}

#[tokio::test]
async fn work_is_saved_before_its_folder_is_removed() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    assert_eq!(tree.salvage().await.unwrap().commit, None);
    fs::write(tree.path().join("draft.txt"), "one\n").unwrap();
    let first = tree.salvage().await.unwrap().commit.expect("there is work");
    assert_eq!(tree.salvage().await.unwrap().commit, Some(first), "the same work is saved once");
    assert_eq!(git_in(tree.path(), &["status", "--porcelain"]).await, "?? draft.txt");

    fs::write(tree.path().join("draft.txt"), "two\n").unwrap();
    let path = tree.path().to_owned();
    let second = tree.remove(true).await.unwrap().commit.expect("there is work");
    assert!(!path.exists());

    // What was saved is there, what was saved before is reachable, and the task can go on.
    let tree = stage.worktree().await;
    let saved = format!("refs/tamma/salvage/{}", stage.task);
    assert_eq!(git_in(tree.path(), &["rev-parse", &saved]).await, second.to_string());
    let show = |commit| format!("{commit}:draft.txt");
    assert_eq!(git_in(tree.path(), &["show", &show(second)]).await, "two");
    git_in(tree.path(), &["merge-base", "--is-ancestor", &first.to_string(), &saved]).await;
    assert_eq!(tree.head().await.unwrap(), stage.base().await);
}

#[tokio::test]
async fn removing_goes_on_from_where_it_was_interrupted() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    let removed = stage.data().join("worktrees/old").join(stage.task.to_string());
    fs::create_dir_all(removed.parent().unwrap()).unwrap();
    fs::rename(tree.path(), &removed).unwrap();
    assert_eq!(tree.remove(true).await.unwrap().commit, None);
    assert!(!removed.exists());
    let tree = stage.worktree().await;
    assert_eq!(git_in(tree.path(), &["status", "--porcelain"]).await, "");
}

#[tokio::test]
async fn a_worktree_whose_link_an_agent_removed_is_saved_all_the_same() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    fs::remove_file(tree.path().join(".git")).unwrap();
    fs::write(tree.path().join("draft.txt"), "one\n").unwrap();
    let saved = tree.remove(true).await.unwrap().commit.expect("there is work");
    let tree = stage.worktree().await;
    assert_eq!(git_in(tree.path(), &["show", &format!("{saved}:draft.txt")]).await, "one");
}

#[tokio::test]
async fn a_branch_is_delivered_once() {
    let stage = Stage::set().await;
    let mirror = stage.mirror().await;
    let tree = stage.worktree().await;
    fs::write(tree.path().join("new.txt"), "one\n").unwrap();
    let commit = tree.commit_all(1, "Add a file", &author()).await.unwrap();
    let deliver = || branch_to_source(&mirror, stage.task, commit);
    assert_eq!(deliver().await.unwrap(), Delivered::Now);
    assert_eq!(deliver().await.unwrap(), Delivered::Before);
    let there = stage.git(&["rev-parse", &branch(stage.task)]).await;
    assert_eq!(there, commit.to_string());
    assert_eq!(stage.git(&["status", "--porcelain"]).await, "", "the user's checkout is untouched");

    // Later work of the same task goes on from there.
    fs::write(tree.path().join("new.txt"), "two\n").unwrap();
    let later = tree.commit_all(2, "Change it", &author()).await.unwrap();
    assert_eq!(branch_to_source(&mirror, stage.task, later).await.unwrap(), Delivered::Now);
}

#[tokio::test]
async fn a_branch_that_others_have_moved_is_not_overwritten() {
    let stage = Stage::set().await;
    let mirror = stage.mirror().await;
    let tree = stage.worktree().await;
    stage.git(&["commit", "--quiet", "--allow-empty", "-m", "theirs"]).await;
    stage.git(&["branch", &branch(stage.task)]).await;
    fs::write(tree.path().join("new.txt"), "one\n").unwrap();
    let commit = tree.commit_all(1, "Add a file", &author()).await.unwrap();
    let error = branch_to_source(&mirror, stage.task, commit).await.unwrap_err();
    assert!(matches!(error, delivery::Error::Conflict { .. }), "{error}");
}

#[tokio::test]
async fn what_a_hook_says_comes_back() {
    let stage = Stage::set().await;
    let mirror = stage.mirror().await;
    let tree = stage.worktree().await;
    let hook = stage.project().join(".git/hooks/pre-receive");
    fs::write(&hook, "#!/bin/sh\necho 'the tide is out' >&2\nexit 1\n").unwrap();
    let path = hook.display().to_string();
    let run = tokio::process::Command::new("chmod").args(["+x", &path]).status();
    assert!(run.await.unwrap().success());
    fs::write(tree.path().join("new.txt"), "one\n").unwrap();
    let commit = tree.commit_all(1, "Add a file", &author()).await.unwrap();
    let error = branch_to_source(&mirror, stage.task, commit).await.unwrap_err();
    let delivery::Error::Rejected { text, .. } = error else { panic!("{error}") };
    assert!(text.contains("the tide is out"), "{text}");
}

#[tokio::test]
async fn added_lines_are_found_in_every_file_whatever_an_agent_says_of_it() {
    let stage = Stage::set().await;
    let tree = stage.worktree().await;
    let base = stage.base().await;
    let write = |name: &str, text: &str| fs::write(tree.path().join(name), text).unwrap();
    // Git would say of these only that they differ.
    write(".gitattributes", "*.txt binary\n*.md -diff\n");
    write("README.md", "changed\n+++ b/other\n");
    write("a b \"é\".txt", "one\ntwo\0\n");
    fs::remove_file(tree.path().join("src/old.txt")).unwrap();
    let commit = tree.commit_all(1, "One", &author()).await.unwrap();
    let added = tree.added(base, commit).await.unwrap();
    let lines = |name: &str| added[name].iter().map(|(at, it)| (*at, &**it)).collect::<Vec<_>>();
    assert_eq!(added.len(), 3, "{added:?}");
    assert_eq!(lines("README.md"), [(1, "changed"), (2, "+++ b/other")]);
    assert_eq!(lines("a b \"é\".txt"), [(1, "one"), (2, "two\0")]);
    assert_eq!(
        tree.text(commit, "README.md").await.unwrap().as_deref(),
        Some("changed\n+++ b/other")
    );
    for nothing in ["src/old.txt", "src", "../README.md", ""] {
        assert_eq!(tree.text(commit, nothing).await.unwrap(), None, "{nothing}");
    }
    assert!(tree.descends(base, commit).await.unwrap());
    assert!(!tree.descends(commit, base).await.unwrap());
}
