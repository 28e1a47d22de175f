//! Simulated machine with a repository, a scripted agent and `tamma up`, shared by the tests of the whole
//! program.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tamma_testkit::agent::Script;
use tamma_testkit::operator::write_operator_file;
use tamma_testkit::project::ProjectConfig;
use tamma_testkit::repository::Repository;
use tempfile::TempDir;

/// Machine with a repository and an agent.
pub(crate) struct Machine {
    folder: TempDir,
    pub(crate) repository: Repository,
}

/// Running `tamma up`.
pub(crate) struct Up {
    child: Child,
    /// Held open, because the process exits if it cannot write.
    _stdout: BufReader<ChildStdout>,
}

/// Stops the background process of a machine at the end of a test.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a Machine);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        // A failed test must not leave a server behind.
        drop(self.0.tamma(&["down"]));
    }
}

impl Machine {
    pub(crate) fn new(script: &Script) -> Self {
        Self::with_config(script, "")
    }

    /// Creates a machine with additional configuration.
    pub(crate) fn with_config(script: &Script, extra: &str) -> Self {
        Self::configured(script, |config| config.more(extra))
    }

    /// Creates a machine with a changed configuration.
    pub(crate) fn configured(
        script: &Script,
        change: impl FnOnce(ProjectConfig) -> ProjectConfig,
    ) -> Self {
        let machine =
            Self { folder: TempDir::new().unwrap(), repository: Repository::new().unwrap() };
        // For root, PostgreSQL runs as another user, who must be able to reach its data.
        let all_may_pass = fs::Permissions::from_mode(0o711);
        fs::set_permissions(machine.folder.path(), all_may_pass).unwrap();
        write_operator_file(&machine.path("data")).unwrap();
        let file = machine.path("script.json");
        script.write(&file).unwrap();
        let configuration = change(ProjectConfig::scripted(&file).unwrap()).to_string();
        machine.repository.write("tamma.yaml", &configuration).unwrap();
        machine
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    #[expect(clippy::disallowed_methods, reason = "the test starts the program itself")]
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tamma"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TAMMA_") {
                command.env_remove(name);
            }
        }
        command
            .args(arguments)
            .current_dir(self.repository.path())
            .stdin(Stdio::null())
            .env("TAMMA_DATA", self.path("data"))
            .env("TAMMA_LISTEN", "127.0.0.1:0")
            // A lost worker is noticed soon.
            .env("TAMMA_HEARTBEAT_SECONDS", "3")
            .env("TAMMA_PERSON", "Grace");
        command
    }

    /// Starts `tamma up` and waits until it is ready.
    pub(crate) fn up(&self) -> Up {
        let log = fs::File::options().create(true).append(true).open(self.path("up.log")).unwrap();
        let mut child = self.command(&["up"]).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("Ctrl-C stops it") {
            line.clear();
            let read = stdout.read_line(&mut line).unwrap();
            assert!(read > 0, "tamma up did not start: {}", self.log());
        }
        Up { child, _stdout: stdout }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("up.log")).unwrap_or_default()
    }

    pub(crate) fn tamma(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command, checks its exit code and returns its output.
    pub(crate) fn run(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.tamma(arguments);
        let text = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()).concat();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}\n{}", self.log());
        text
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(0, &[arguments, &["--json"]].concat())).unwrap()
    }

    /// Processes of this machine, found by their command line or working folder.
    pub(crate) fn processes(&self) -> Vec<String> {
        let (data, mut processes) = (self.path("data"), Vec::new());
        for entry in fs::read_dir("/proc").unwrap() {
            let process = entry.unwrap().path();
            let command_line = fs::read(process.join("cmdline")).unwrap_or_default();
            let command_line = String::from_utf8_lossy(&command_line).replace('\0', " ");
            let working_folder = fs::read_link(process.join("cwd")).unwrap_or_default();
            if command_line.contains(&*data.to_string_lossy()) || working_folder.starts_with(&data)
            {
                processes.push(format!("{} {command_line}", process.display()));
            }
        }
        processes
    }

    /// Titles of the commits on the branch of a task that are not on `main`.
    pub(crate) fn commits(&self, task: &str) -> Vec<String> {
        // Works without a server: the branch starts with the last digits of the ID.
        let pattern = format!("refs/heads/tamma/{}*", &task[task.len() - 8..]);
        let format = "--format=%(refname:short)";
        let branch = self.repository.git(&["for-each-ref", format, &pattern]).unwrap();
        let range = format!("main..{}", branch.trim());
        let listed = self.repository.git(&["log", "--format=%s", &range]).unwrap();
        listed.lines().map(str::to_owned).collect()
    }
}

impl Up {
    pub(crate) fn signal(&mut self, signal: Signal) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // A failed test must not leave a server behind. The kernel stops its children.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
