//! Questions of `tamma "…"` in a terminal, answered as a person does: by typing.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use tamma_testkit::agent::{AgentStep, IMPLEMENTER, PLANNER, PromptCase, Script};
use tamma_testkit::sample::{sample_plan, sample_work};

use crate::machine::{Machine, StopOnDrop};

/// Time without any output after which a text does not come any more.
const SILENCE: Duration = Duration::from_mins(2);

/// What Ctrl-C sends.
const CTRL_C: &str = "\u{3}";

/// `tamma` in a pseudo terminal, which `script` of util-linux opens.
struct Terminal {
    child: Child,
    keyboard: ChildStdin,
    output: Receiver<Vec<u8>>,
    shown: String,
    /// End of the last text that was waited for.
    seen: usize,
}

impl Terminal {
    /// Runs `tamma` with a request.
    #[expect(clippy::disallowed_methods, reason = "the test opens the terminal itself")]
    fn open(machine: &Machine, request: &str) -> Self {
        let tamma = machine.command(&[]);
        let program = tamma.get_program().to_str().unwrap();
        let line = format!("stty rows 40 cols 120 && exec '{program}' '{request}'");
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]);
        for (name, value) in tamma.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(tamma.get_current_dir().unwrap());
        command.env("SHELL", "/bin/sh").env("TERM", "xterm").env("NO_COLOR", "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let keyboard = child.stdin.take().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let (sender, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stdout.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keyboard, output, shown: String::new(), seen: 0 }
    }

    /// Waits until the terminal shows a text, after the last one that was waited for.
    fn wait_for(&mut self, text: &str) {
        while !self.shown[self.seen..].contains(text) {
            let Ok(bytes) = self.output.recv_timeout(SILENCE) else {
                panic!("the terminal does not show `{text}`:\n{}", self.shown);
            };
            self.shown.push_str(&String::from_utf8_lossy(&bytes));
        }
        let at = self.shown[self.seen..].find(text).unwrap();
        self.seen += at + text.len();
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    /// Waits for the end of the program and returns its exit code.
    fn exit_code(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A failed test must not leave a program behind.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Agent whose second plan changes fewer files, as it is told to. Both plans need a person.
fn script() -> Script {
    let (first, second) = (sample_plan(7), sample_plan(6));
    let work: Vec<_> = sample_work(&second).collect();
    let plan = |plan| [AgentStep::Plan(Box::new(plan))];
    Script::from_cases([
        PromptCase::new(IMPLEMENTER, work),
        PromptCase::new("Fewer files.", plan(second)),
        PromptCase::new(PLANNER, plan(first)),
    ])
}

#[test]
fn at_a_terminal_plans_are_revised_approved_or_rejected_and_ctrl_c_leaves_the_task_open() {
    let machine = Machine::new(&script());
    let _stop = StopOnDrop(&machine);

    // Revised with a comment, then approved.
    let mut terminal = Terminal::open(&machine, "Greet Cy as well");
    terminal.wait_for("Add the name to the list.");
    terminal.wait_for("[y] approve");
    // Neither an empty line nor an empty comment decides anything.
    terminal.press("\n");
    terminal.wait_for("[y] approve");
    terminal.press("e\n");
    terminal.wait_for("What should change?");
    terminal.press("\n");
    terminal.wait_for("[y] approve");
    terminal.press("e\n");
    terminal.wait_for("What should change?");
    terminal.press("Fewer files.\n");
    terminal.wait_for("plan sent back for revision by Grace");
    terminal.wait_for("[y] approve");
    terminal.press("y\n");
    terminal.wait_for("plan approved by Grace");
    terminal.wait_for("Branch ready: git show tamma/");
    terminal.wait_for("-greet-cy-as-well");
    assert_eq!(terminal.exit_code(), Some(0));

    // Rejected, and then cancelled.
    let mut terminal = Terminal::open(&machine, "Greet Di as well");
    terminal.wait_for("[y] approve");
    terminal.press("n\n");
    terminal.wait_for("Why?");
    terminal.press("Nobody knows Di.\n");
    terminal.wait_for("plan rejected by Grace");
    terminal.wait_for("[t] try again");
    terminal.press("c\n");
    terminal.wait_for("Why?");
    terminal.press("Obsolete.\n");
    terminal.wait_for("cancelled by Grace");
    assert_eq!(terminal.exit_code(), Some(1));

    // Ctrl-C at the question decides nothing.
    let mut terminal = Terminal::open(&machine, "Greet Ed as well");
    terminal.wait_for("[y] approve");
    terminal.press(CTRL_C);
    terminal.wait_for("No longer watching; the task goes on.");
    terminal.wait_for("tamma task watch ");
    assert_eq!(terminal.exit_code(), Some(130));
    let inbox = machine.json(&["inbox"]);
    assert_eq!(inbox["tasks"][0]["title"], "Greet Ed as well", "{inbox:#}");
    assert_eq!(inbox["tasks"][0]["state"], "awaiting_approval", "{inbox:#}");
    machine.run(0, &["down"]);
}
