#!/usr/bin/env python3
"""Drives `tamma top` in a terminal of 80 × 24 with tmux: every screen, a decision, an outage and a signal.

usage: run.py <program folder> <folder for captures> [--write]
`--write` replaces the screens in docs/top.md.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

PROGRAMS = pathlib.Path(sys.argv[1]).resolve()
CAPTURES = pathlib.Path(sys.argv[2]).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[3]
SHOP = ROOT / "lab" / "demo" / "shop.sh"
DOCUMENT = ROOT / "docs" / "top.md"
TITLE = "Round totals half to even"
TIMEOUT = 60

# Runs the program in the pane, and notes its process and the settings of the terminal.
WRAPPER = """stty -a > before
sh -c 'echo $$ > pid; exec "$0" top' "$1"
echo "exit code $?"
stty -a > after
cat
"""

failures: list[str] = []
screens: dict[str, str] = {}


def check(passed: bool, text: str) -> None:
    print(f"{'✓' if passed else '✗'} {text}")
    if not passed:
        failures.append(text)


class Pane:
    """Terminal of 80 × 24 in a tmux server of its own."""

    def __init__(self, folder: pathlib.Path, env: dict[str, str], tamma: str) -> None:
        self.folder = folder
        self.socket = str(folder / "tmux")
        self.env = env
        (folder / "wrapper.sh").write_text(WRAPPER)
        self.tmux("new-session", "-d", "-x", "80", "-y", "24", "sh", "wrapper.sh", tamma)

    def tmux(self, *arguments: str) -> str:
        command = ["tmux", "-u", "-f", "/dev/null", "-S", self.socket, *arguments]
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=True)
        return done.stdout

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def text(self) -> str:
        return self.tmux("capture-pane", "-p")

    def wait(self, pattern: str, what: str, seconds: float = TIMEOUT) -> str:
        """Waits for a text on the screen and returns the screen."""
        deadline = time.monotonic() + seconds
        while True:
            text = self.text()
            if re.search(pattern, text):
                check(True, what)
                return text
            if time.monotonic() > deadline:
                print(text)
                check(False, what)
                return text
            time.sleep(0.1)

    def close(self) -> None:
        self.tmux("kill-server")


def wait_for_file(path: pathlib.Path) -> str:
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.1)
    return ""


def use(pane: Pane, stop_server) -> None:
    """Goes through all screens, and through an outage of the server."""
    screens["board"] = pane.wait(r"Approval\n.*Round totals", "the board shows the task under its phase")
    pane.press("2")
    screens["inbox"] = pane.wait(r"2 Inbox 1[\s\S]*Round totals", "the inbox shows the task")
    pane.press("Enter")
    screens["task"] = pane.wait(r"state +awaiting approval", "a task opens with Enter")
    pane.press("d")
    pane.wait(r"\[approve\] \[reject\]", "the decision shows its answers")
    screens["decision"] = pane.wait(r"plan +1 \(", "the decision shows the plan")
    pane.press("Enter")
    pane.wait(r"Really approve plan 1 \([0-9a-f]{12}\)\?", "an approval names the plan and asks for confirmation")
    pane.press("y")
    pane.wait(r"Accepted\.", "the server accepted the approval")
    pane.press("l")
    pane.wait(r"tool ", "the log shows a tool call in one row")
    pane.press("G")
    screens["log"] = pane.wait(r"messages and actions · live", "the log follows its end")
    pane.press("Space")
    pane.wait(r"paused, \d+ new", "the log pauses")
    pane.press("Space")
    pane.press("f")
    pane.wait(r"tool calls · ", "the log is filtered by kind")
    pane.press("?")
    screens["help"] = pane.wait(r"Any key closes this help", "the help lists the keys")
    pane.press("Escape")
    rows = [row for screen in screens.values() for row in screen.splitlines()]
    check(all(len(row) <= 80 for row in rows), "no row is wider than 80 columns")
    stop_server()
    pane.press("1")
    pane.wait(r"offline: ", "an outage is shown")
    start = time.monotonic()
    pane.press("?")
    pane.wait(r"Any key closes this help", "keys work during an outage", 5)
    check(time.monotonic() - start < 2, "the screen does not wait for the network")


def write_document() -> None:
    text = DOCUMENT.read_text()
    for name, screen in screens.items():
        block = f"<!-- screen {name} -->\n```text\n{screen.rstrip()}\n```\n<!-- end -->"
        pattern = re.compile(rf"<!-- screen {name} -->\n.*?<!-- end -->", re.DOTALL)
        text = pattern.sub(lambda _, block=block: block, text)
    DOCUMENT.write_text(text)


def main() -> int:
    start = time.monotonic()
    if shutil.which("tmux") is None:
        print("top: failed: tmux is not installed")
        return 1
    with tempfile.TemporaryDirectory(prefix="tamma-top-") as name:
        folder = pathlib.Path(name)
        repository = folder / "shop"
        env = {
            "PATH": os.environ["PATH"],
            "HOME": name,
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "TAMMA_DATA": str(folder / "data"),
            "TAMMA_LISTEN": "127.0.0.1:0",
            "TAMMA_PERSON": "Grace",
            "GIT_CONFIG_GLOBAL": str(folder / "gitconfig"),
        }
        subprocess.run(["bash", SHOP, folder, PROGRAMS], env=env, check=True)
        (folder / "gitconfig").write_text("[user]\n\tname = Grace\n\temail = grace@example.org\n")
        tamma = str(PROGRAMS / "tamma")
        up = subprocess.Popen(
            [tamma, "up"], cwd=repository, env=env, stdout=subprocess.PIPE, stderr=(folder / "log").open("w"), text=True
        )
        pane = None
        try:
            for line in up.stdout:
                if re.search(r"http://[0-9.]+:\d+", line):
                    break
            threading.Thread(target=up.stdout.read, daemon=True).start()
            add = [tamma, "task", "add", TITLE, "--json"]
            json.loads(subprocess.run(add, cwd=repository, env=env, capture_output=True, text=True, check=True).stdout)
            refused = subprocess.run([tamma, "top"], cwd=repository, env=env, capture_output=True, text=True, check=False)
            check(
                refused.returncode == 1 and "needs a terminal" in refused.stderr,
                "without a terminal, a plain message says so",
            )
            pane = Pane(folder, env, tamma)

            def stop_server() -> None:
                up.terminate()
                up.wait()

            use(pane, stop_server)
            os.kill(int(wait_for_file(folder / "pid")), signal.SIGTERM)
            after = wait_for_file(folder / "after")
            check(after == (folder / "before").read_text(), "a signal restores the settings of the terminal")
            left = pane.wait(r"exit code 143", "a signal ends the program")
            check("Any key closes" not in left, "the alternate screen is left")
        finally:
            if pane:
                pane.close()
            if up.poll() is None:
                up.terminate()
                up.wait()
    CAPTURES.mkdir(parents=True, exist_ok=True)
    for screen_name, screen in screens.items():
        (CAPTURES / f"{screen_name}.txt").write_text(screen)
    if "--write" in sys.argv and not failures:
        write_document()
    took = f"{time.monotonic() - start:.0f} s"
    result = "every check passed" if not failures else f"{len(failures)} failures"
    print(f"top: {len(screens)} screens of 80 × 24, {result}, in {took}")
    return 1 if failures else 0


sys.exit(main())
