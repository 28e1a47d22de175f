//! Disk usage, and removal of workspaces whose work is saved elsewhere.

use std::fs;

use tamma_core::task::branch_name;
use tamma_engine::delivery::push_task_branch;
use tamma_engine::git::Git;
use tamma_engine::workspaces::{Workspace, WorkspaceKind, Workspaces};

use crate::fixture::{Fixture, author};

async fn listed(fixture: &Fixture, kind: WorkspaceKind) -> Workspace {
    let all = workspaces(fixture).await.list().await.unwrap();
    all.into_iter().find(|it| it.kind == kind).expect("workspace exists")
}

async fn workspaces(fixture: &Fixture) -> Workspaces {
    Workspaces::new(Git::find("git").await.unwrap(), &fixture.data())
}

#[tokio::test]
async fn only_saved_workspaces_are_removed() {
    let fixture = Fixture::create().await;
    assert_eq!(workspaces(&fixture).await.list().await.unwrap(), Vec::new());
    let tree = fixture.worktree().await;
    fs::write(tree.path().join("draft.txt"), "one\n").unwrap();
    let workspace = listed(&fixture, WorkspaceKind::Worktree).await;
    assert_eq!(workspace.task, Some(fixture.task));
    assert_eq!(workspace.unsaved.as_deref(), Some("it has unsaved work"));
    assert!(workspace.bytes > 0);

    // Without a successful push it stays.
    let hidden_source = fixture.scratch_path("away");
    fs::rename(fixture.project(), &hidden_source).unwrap();
    assert!(workspaces(&fixture).await.remove(&workspace, false).await.unwrap().is_some());
    assert!(tree.path().exists());
    fs::rename(&hidden_source, fixture.project()).unwrap();
    let saved = "its uncommitted work is saved on this machine only";
    assert_eq!(listed(&fixture, WorkspaceKind::Worktree).await.unsaved.as_deref(), Some(saved));
    assert!(listed(&fixture, WorkspaceKind::Mirror).await.unsaved.is_some(), "it has a worktree");

    assert_eq!(workspaces(&fixture).await.remove(&workspace, false).await.unwrap(), None);
    assert!(!tree.path().exists());
    let mirror = listed(&fixture, WorkspaceKind::Mirror).await;
    assert_eq!(mirror.unsaved, None);
    assert_eq!(workspaces(&fixture).await.remove(&mirror, false).await.unwrap(), None);
    assert_eq!(workspaces(&fixture).await.list().await.unwrap(), Vec::new());

    // All work is restored.
    let tree = fixture.worktree().await;
    assert_eq!(fs::read_to_string(tree.path().join("draft.txt")).unwrap(), "one\n");
}

#[tokio::test]
async fn leftovers_of_delivered_tasks_are_removed_and_unpushed_commits_are_kept() {
    let fixture = Fixture::create().await;
    let tree = fixture.worktree().await;
    let hidden_source = fixture.scratch_path("away");
    fs::rename(fixture.project(), &hidden_source).unwrap();
    fs::write(tree.path().join("new.txt"), "one\n").unwrap();
    let commit = tree.commit_all(1, "Done", &author()).await.unwrap();
    fs::rename(&hidden_source, fixture.project()).unwrap();
    let reason = format!("{commit} is not pushed");
    assert_eq!(listed(&fixture, WorkspaceKind::Worktree).await.unsaved, Some(reason));
    let branch = branch_name(fixture.task, "Add a file");
    let pushed = push_task_branch(&fixture.mirror().await, (fixture.task, &branch), commit).await;
    pushed.unwrap();
    assert_eq!(listed(&fixture, WorkspaceKind::Worktree).await.unsaved, None);
    fs::write(tree.path().join("built.o"), "rubbish\n").unwrap();
    let workspace = listed(&fixture, WorkspaceKind::Worktree).await;
    assert_eq!(workspaces(&fixture).await.remove(&workspace, true).await.unwrap(), None);
    let hidden = fixture.git(&["for-each-ref", "refs/tamma"]).await;
    assert_eq!(hidden, "", "it is not pushed either");
    assert_eq!(listed(&fixture, WorkspaceKind::Mirror).await.unsaved, None);
}
