//! Help texts, as documented.

use assert_cmd::Command;
use insta::assert_snapshot;

fn help(arguments: &[&str]) -> String {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tamma"));
    let output = command.env_clear().args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn commands_are_listed_in_groups() {
    let text = help(&["--help"]);
    assert_eq!(text, help(&["help"]));
    assert_snapshot!(text, @r#"
    Run coding agents on development tasks, with plans, approvals, gates and budgets

    Usage: tamma <COMMAND>
           tamma "What to do"

    Start:
      try           Try Tamma with an example repository and a demo agent
      do            Do a task in this repository: set up, start, add, follow, decide
      init          Set up a repository and write tamma.yaml
      doctor        Check that this machine is ready
      help          Print help for a command

    This machine:
      up            Start Tamma on this machine
      down          Stop Tamma on this machine
      status        Show what runs on this machine, and what waits
      logs          Show the logs of Tamma on this machine
      service       Run Tamma as a service of your user
      sign-in       Print a link that signs you in to the web UI

    Tasks:
      task          Add, list, show and follow tasks
      inbox         List tasks and pipelines waiting on a person
      top           Watch and steer tasks in the terminal
      chat          Ask about tasks, or request actions, in plain English
      pause         Pause a task
      resume        Resume a paused task
      retry         Retry failed work, or skip the wait
      cancel        Cancel a task and keep its work
      pipeline      Take stories through ordered phases
      queue         Show, pause and resume merge queues

    Decisions:
      approve       Approve a plan
      reject        Reject a plan
      revise-plan   Ask for another plan, or edit a plan
      change-task   Change the request of a task, and replan
      accept        Accept a change that awaits your review
      reply         Reply to an agent's question
      answer        Answer any open question, such as requesting changes
      council       Convene the council on a task
      rate          Rate a closed task

    Settings:
      config        Check, show and describe the configuration
      project       Register and list repositories
      forge         Add, list and check forges such as GitHub, GitLab and Gitea
      completions   Generate a shell completion script

    Team:
      knowledge     Manage the knowledge base
      alert         List and test alerts
      person        Manage people and service accounts (operators only)
      organisation  Manage organisations, their projects and their people
      access        Manage the roles of people in projects (operators and administrators)
      audit         Verify or export the audit log, and verify task histories
      permissions   List the effective permissions of people and agents
      agents        Show the agent pool: workers, runs, free slots and quotas

    Sign-in:
      login         Sign in with an identity provider
      logout        Sign out
      session       List and revoke sessions
      token         Create, list and revoke access tokens

    Servers:
      serve         Start the API server
      work          Start a worker
      migrate       Run database migrations
      maintenance   Keep agents from starting, during maintenance (operators only)
      keys          Create, list and rotate encryption keys
      mcp           Run Tamma as an MCP server
      workspace     List and reclaim disk space used by tasks
      capacity      Estimate machines, databases and cost of a load

    Evaluation:
      eval          Measure an agent on a set of tasks

    Options:
      -h, --help     Print help
      -V, --version  Print version

    Exit codes: 0 success, 1 failure, 2 usage error, 3 a task is waiting on a person
    "#);
}

#[test]
fn details_precede_the_arguments() {
    assert_snapshot!(help(&["approve", "--help"]), @r#"
    Approve a plan

    In a terminal, shows the plan and asks for confirmation. In a script, pass --plan with the hash of
    the plan you reviewed. The approval is refused if the plan, its base commit, the rules or the
    prompts have changed.

    Usage: tamma approve [OPTIONS] <TASK>

    Arguments:
      <TASK>  Task ID, or at least four characters from its start or end

    Options:
          --plan <HASH>    Hash of the plan you reviewed (at least 8 characters)
          --reason <TEXT>  Reason, recorded in the task history
          --json           Print JSON
      -h, --help           Print help

    Connection:
          --as <NAME>     Your name [default: $TAMMA_PERSON, git user.name or login name]
          --server <URL>  Server URL [default: $TAMMA_URL or the server started by `tamma up`]
    "#);
}

#[test]
fn connection_options_have_their_own_heading() {
    assert_snapshot!(help(&["task", "add", "--help"]), @r#"
    Add a task

    Usage: tamma task add [OPTIONS] <TITLE>

    Arguments:
      <TITLE>  One-line title

    Options:
          --description <TEXT>       Task description
          --description-file <FILE>  Read the description from a file (- for standard input)
          --criterion <TEXT>         Acceptance criterion (repeatable)
          --type <TYPE>              feature, bugfix, refactor, test, docs or chore [default: feature]
          --priority <PRIORITY>      low, medium, high or critical [default: medium]
          --label <LABEL>            Label (repeatable)
          --depends-on <TASK>        Task that must be completed first (repeatable)
          --agent <NAME>             Configured agent that implements the task [default: the tier's]
          --issue <URL>              Issue that the task comes from
          --issue-number <NUMBER>    Number of that issue
          --metadata <KEY=VALUE>     Additional value for other tools (repeatable)
          --plan <FILE>              Start from this plan (JSON); it is checked like any other
          --project <PROJECT>        Project name or ID [default: the project of this repository]
          --id <UUID>                Task ID (UUIDv7); adding the same ID twice adds one task
          --watch                    Follow the task until it is closed
          --until-asked              With --watch, exit with code 3 when the task needs a person
          --json                     Print JSON
      -h, --help                     Print help

    Connection:
          --as <NAME>     Your name [default: $TAMMA_PERSON, git user.name or login name]
          --server <URL>  Server URL [default: $TAMMA_URL or the server started by `tamma up`]
    "#);
}

#[test]
fn every_command_describes_its_arguments_on_one_line_each() {
    for command in ["init", "up", "answer", "revise-plan", "serve", "work", "doctor", "mcp", "do"] {
        let text = help(&[command, "--help"]);
        assert!(text.contains("\n  -h, --help ") && text.contains("  Print help\n"), "{text}");
    }
}

#[test]
fn the_terminal_ui_needs_a_terminal() {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tamma"));
    let output = command.env_clear().arg("top").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("`tamma top` needs a terminal"), "{text}");
}
