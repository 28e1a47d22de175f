"""One Tamma with a scripted agent, and a new folder for each setup that a page names."""

import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import subprocess
import threading
import time

PATIENCE = 60
# Set by a signal: no further command starts, and everything that runs is stopped.
STOPPING = threading.Event()
HOME_SHOWN = "/home/grace"
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]")

# Tasks of the pages: files of the plan with their content.
TASKS = {
    "Greet the world": {"greet.sh": '#!/bin/sh\necho "Hello, world!"\n'},
    "Reject negative amounts": {"amount.sh": '#!/bin/sh\n[ "$1" -ge 0 ] || exit 1\n'},
    "Greet every continent": {
        "greet.sh": "#!/bin/sh\ncat greetings/*.txt\n",
        **{f"greetings/{name}.txt": "Hello!\n" for name in ("africa", "america", "antarctica", "asia", "australia", "europe")},
    },
}


class Failure(Exception):
    pass


def agent_script():
    """Script of the agent: a plan and a change for each task."""
    def end(cost):
        return [{"usage": {"cost": cost}}, {"end": {"tokens": {"input": 2000, "cached": 500, "output": 200}}}]

    lessons = {"tool": {"name": "submit_lessons", "args": {"lessons": []}}}
    cases = [{"when": "You look back at a development task", "steps": [lessons, *end("0.01")]}]
    for title, files in TASKS.items():
        changes = [{"path": path, "action": "create", "description": "new", "estimated_lines": 2} for path in files]
        plan = {
            "summary": f"{title}, with {len(files)} new files.",
            "approach": "The scripts print what the task asks for.",
            "signals": {"modules": 1, "novelty": "none", "tests": "none", "security": "none", "ambiguity": "none"},
            "file_changes": changes,
            "testing_strategy": "Run the script.",
            "estimated_tokens": 2000,
            "estimated_cost_usd": "0.02",
        }
        writes = [{"write": {"path": path, "content": content}} for path, content in files.items()]
        cases += [
            {"when": f"The folder is read-only.\n\n# Task: {title}", "steps": [{"plan": plan}, *end("0.01")]},
            {
                "when": f"do not stop to ask whether to continue.\n\n# Task: {title}",
                "steps": [{"say": "I will write the files."}, *writes, *end("0.02")],
            },
        ]
    return {"modes": ["build"], "cases": cases,
            "steps": [{"fail": {"code": -32603, "message": "the script has no case for this prompt"}}]}


class World:
    """Programs, the data folder and all sessions. Ends what it started."""

    def __init__(self, scratch, programs, root):
        self.scratch, self.root = scratch, root
        # For root, PostgreSQL runs as another user, who must be able to reach its data.
        scratch.mkdir(mode=0o711)
        bin_folder = scratch / "bin"
        bin_folder.mkdir()
        (bin_folder / "tamma").symlink_to(programs / "tamma")
        # Program and script share a folder that the agent can read in its sandbox.
        (bin_folder / "scripted-agent").write_bytes((programs / "scripted-agent").read_bytes())
        (bin_folder / "scripted-agent").chmod(0o755)
        (bin_folder / "agent.json").write_text(json.dumps(agent_script()))
        opencode = bin_folder / "opencode"
        opencode.write_text(f"#!/bin/sh\nTAMMA_SCRIPT='{bin_folder}/agent.json' exec '{bin_folder}/scripted-agent' \"$@\"\n")
        opencode.chmod(0o755)
        (scratch / "gitconfig").write_text("[user]\n\tname = Grace\n\temail = grace@example.org\n[init]\n\tdefaultBranch = main\n")
        self.env = {
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "NO_COLOR": "1",
            "TAMMA_DATA": str(scratch / "data"),
            "TAMMA_LISTEN": "127.0.0.1:0",
            "GIT_CONFIG_GLOBAL": str(scratch / "gitconfig"),
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        self.sessions, self.servers, self.count = [], [], 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close_sessions()
        subprocess.run([self.scratch / "bin/tamma", "down"], env=self.env, cwd=self.scratch, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, timeout=PATIENCE, check=False)
        for server in self.servers:
            server.terminate()
            server.wait(PATIENCE)

    def close_sessions(self):
        for session in list(self.sessions):
            session.close()

    def session(self, name):
        self.count += 1
        session = Session(self, self.scratch / f"home-{self.count}")
        self.sessions.append(session)
        setup = SETUPS.get(name)
        if setup is None:
            raise Failure(f"there is no setup `{name}`; use one of {', '.join(SETUPS)}")
        setup(session)
        return session


class Session:
    """Folder and environment of a person, in which commands run one after the other."""

    def __init__(self, world, home):
        self.world = world
        self.home = home
        home.mkdir()
        home.chmod(0o711)
        self.cwd = str(home)
        self.env = {**world.env, "HOME": str(home)}
        self.values = {}
        self.running = []
        self.task = None

    def replace(self, text, shown=False):
        """Replaces the examples of a page by the real values; in an output only what the page calls by a name."""
        for example, real in sorted(self.values.items(), key=lambda it: -len(it[0])):
            if not shown or not re.fullmatch(r"[0-9a-f-]+", example):
                text = text.replace(example, real)
        return text

    def learn(self, values):
        self.values |= values

    def clean(self, output):
        output = ANSI.sub("", output).replace("\r\n", "\n")
        # A status line is overwritten in place.
        output = re.sub(r"[^\n]*\r", "", output)
        return output.replace(str(self.home), HOME_SHOWN)

    def script(self, text):
        """Command for a shell that stores its folder and environment at the end."""
        state = self.home.with_suffix(".state")
        return ["bash", "-c", f"{text}\ncode=$?\n{{ pwd; env -0; }} > '{state}'\nexit $code"], state

    def load(self, state):
        if not state.exists():
            return
        folder, _, environment = state.read_bytes().partition(b"\n")
        state.unlink()
        self.cwd = folder.decode()
        pairs = (entry.decode().partition("=") for entry in environment.split(b"\0") if entry)
        self.env = {name: value for name, _, value in pairs if name not in ("_", "SHLVL", "PWD", "OLDPWD")}

    def run(self, text, types=None):
        if STOPPING.is_set():
            raise Failure(f"terminated before `{text}`")
        command, state = self.script(text)
        if types is not None:
            code, output = self.run_in_terminal(command, types)
        else:
            process = subprocess.Popen(command, cwd=self.cwd, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, start_new_session=True)
            try:
                output = process.communicate(timeout=PATIENCE)[0]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise Failure(f"`{text}` did not end within {PATIENCE} s") from None
            code = process.returncode
        self.load(state)
        return code, self.clean(output.decode(errors="replace"))

    def run_in_terminal(self, command, types):
        """Types a line once the command has stopped printing, and hides nothing of what it prints."""
        terminal, end = pty.openpty()
        process = subprocess.Popen(command, cwd=self.cwd, env=self.env, stdin=end, stdout=end, stderr=end, start_new_session=True)
        os.close(end)
        output, typed, deadline = b"", False, time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            readable, _, _ = select.select([terminal], [], [], 0.5)
            if readable:
                try:
                    part = os.read(terminal, 65536)
                except OSError:
                    part = b""
                if not part:
                    break
                output += part
            elif not typed and output and not output.endswith(b"\n"):
                os.write(terminal, types.encode() + b"\n")
                typed = True
        else:
            process.kill()
        os.close(terminal)
        return process.wait(PATIENCE), output

    def start(self, text, ready):
        """Starts a command that keeps running, and waits until it prints a pattern or ends."""
        process = subprocess.Popen(["bash", "-c", f"exec {text}"], cwd=self.cwd, env=self.env, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, text=True)
        self.running.append(process)
        output, deadline = "", time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if not select.select([process.stdout], [], [], 0.5)[0]:
                continue
            line = process.stdout.readline()
            output += line
            found = re.search(ready, line)
            if found:
                if found[0].startswith("http://"):
                    self.env["TAMMA_URL"] = found[0]
                threading.Thread(target=process.stdout.read, daemon=True).start()
                return 0, self.clean(output)
            if not line:
                return process.wait(PATIENCE), self.clean(output)
        raise Failure(f"`{text}` printed no `{ready}` within {PATIENCE} s:\n{output}")

    def close(self):
        """Stops what still runs, so that nothing of this folder shows in the next one."""
        self.world.sessions.remove(self)
        if self.task and not STOPPING.is_set():
            # Refused if the task is closed.
            self.run(f"tamma cancel {self.task} --reason 'The page ends here'")
        for process in reversed(self.running):
            if process.poll() is None:
                process.terminate()
                process.wait(PATIENCE)

    # ── Setups

    def expect(self, text, code=0):
        actual, output = self.run(text)
        if actual != code:
            raise Failure(f"setup: `{text}` exited with {actual} instead of {code}:\n{output}")
        return output

    def repository(self, more=""):
        """A repository with a check, in which Tamma runs."""
        self.new_repository()
        self.expect("tamma init")
        if more:
            with open(pathlib.Path(self.cwd, "tamma.yaml"), "a", encoding="utf-8") as rules:
                rules.write(more)
        self.expect("git add . && git commit --quiet --message 'Set up Tamma'")
        self.expect("tamma up --detach")

    def new_repository(self):
        """A repository of a person who has not used Tamma in it."""
        self.expect("git init --quiet shop && cd shop && printf 'test:\\n\\ttrue\\n' > Makefile")
        self.expect("git add . && git commit --quiet --message 'Add the shop'")

    def add_task(self, title, code):
        output = self.expect(f"tamma task add '{title}' --watch --until-asked", code)
        task = re.search(r"Added ([0-9a-f]{8})", output)[1]
        uuid = re.search(r"[0-9a-f]{8}-[0-9a-f-]{27}", self.expect("tamma task list --all --json"))[0]
        show = self.expect(f"tamma task show {task}")
        plan = re.search(r"plan +\d+ \(([0-9a-f]{12})\)", show)
        commit = re.search(r"--commit ([0-9a-f]+)", show)
        self.task = task
        self.learn({"2b701bea": task, "3f2a": task, "<id>": task, "task-<id>": f"task-{uuid}"})
        if plan:
            self.learn({"98e48dc6bacd": plan[1]})
        if commit:
            self.learn({"1c9e0f2a77b0": commit[1]})


def empty(session):
    pass


def stopped(session):
    """A machine on which Tamma does not run."""
    session.expect("tamma down")


def new_repository(session):
    session.new_repository()


def repository(session):
    session.repository()


def waiting_plan(session):
    """A plan of medium risk, which waits for a person."""
    session.repository()
    session.add_task("Greet every continent", 3)


def waiting_change(session):
    """A change that a person must review."""
    session.repository("ceremony:\n  low: { human_review: true }\n")
    session.add_task("Greet the world", 3)
    session.learn({"src/price.rs:12": "greet.sh:1", "src/tax.rs:3": "greet.sh:2"})


def completed_task(session):
    session.repository()
    session.add_task("Greet the world", 0)
    session.learn({"<port>": str(temporal_port(session.world.scratch / "data"))})


def temporal_port(data):
    """Port of the private Temporal, as `ps` shows it."""
    for entry in pathlib.Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(str(data) in part for part in line) and "--port" in line:
            return int(line[line.index("--port") + 1])
    raise Failure("setup: no Temporal runs")


def knowledge(session):
    """A plan in a file, to check entries against."""
    session.repository()
    changes = [{"path": "names.txt", "action": "modify", "description": "another name", "estimated_lines": 1}]
    plan = {"summary": "Change a name.", "approach": "Edit the file.", "file_changes": changes, "testing_strategy": "Read it."}
    pathlib.Path(session.cwd, "plan.json").write_text(json.dumps(plan))


def credentials(session):
    """Files that the person has from a forge."""
    session.repository()
    session.expect("echo secret-token > token && openssl genrsa -out app.pem 2048 2> /dev/null")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def servers(session):
    """Existing PostgreSQL and Temporal servers, and a repository."""
    world = session.world
    scripts = world.root / "crates/testkit/src"
    urls = []
    for script, more in (("postgres.sh", []), ("temporal.sh", [str(free_port())])):
        process = subprocess.Popen(["bash", scripts / script, world.scratch / script, str(os.getpid()), *more], env={**os.environ},
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        world.servers.append(process)
        urls.append(process.stdout.readline().strip())
        if not urls[-1]:
            raise Failure(f"setup: {script} did not start")
    database = urls[0].replace("/postgres?", "/tamma?")
    restored = urls[0].replace("/postgres?", "/restored?")
    session.expect(f"psql --quiet --dbname '{urls[0]}' --command 'CREATE DATABASE tamma' --command 'CREATE DATABASE restored'")
    session.new_repository()
    session.expect("tamma init && git add . && git commit --quiet --message 'Set up Tamma'")
    session.learn({
        "postgres://tamma@db.example.com/tamma": f"'{database}'",
        "temporal.example.com:7233": urls[1],
        "/srv/greeter": session.cwd,
        "0.0.0.0:8622": "127.0.0.1:0",
        "entries_2026_11": f"entries_{time.strftime('%Y_%m', time.gmtime())}",
    })
    session.env |= {"TAMMA_DATA": str(session.home / "data"), "TAMMA_PERSON": "Grace", "RESTORED_URL": restored,
                    "TAMMA_TOKEN": "0123456789abcdef0123456789abcdef"}


SETUPS = {
    "empty": empty,
    "stopped": stopped,
    "new-repository": new_repository,
    "repository": repository,
    "waiting-plan": waiting_plan,
    "waiting-change": waiting_change,
    "completed-task": completed_task,
    "knowledge": knowledge,
    "credentials": credentials,
    "servers": servers,
}
