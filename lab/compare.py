#!/usr/bin/env python3
"""Drives Tamma and other orchestrators through the same scripted task, and measures them from outside.

usage: compare.py <new folder> [--products tamma,bernstein,paperclip] [--rounds 5] [--tasks 1,4,8] [--kill 1]

Method and figures: docs/compared.md. TAMMA_PROGRAMS names the folder with `tamma` and `scripted-agent`; `bernstein`
and `paperclipai` must be on the PATH. Nothing is installed. Needs root and a cgroup2 mount: every process of a product
runs in one cgroup, so that CPU time, memory and processes left behind are counted even if a process detaches itself.
Paperclip's PostgreSQL refuses root, so Paperclip runs as the user that COMPARE_USER names, or `nobody`. Each line of
output is one measurement as JSON, also in `results.jsonl` of the folder; the last lines are medians.
"""

import argparse
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

WORK = '''#!/bin/sh
# The work of every agent: half a file, a wait, the other half.
echo "first half, $(date +%s%N)" > "$1.txt"
sleep "$2"
echo "second half" >> "$1.txt"
'''
# Stand-in for the `claude` program: the same work, a commit, and what the prompt asks for at the end.
CLAUDE = '''#!/usr/bin/env python3
import json, os, pathlib, re, subprocess, sys, time, urllib.request
if "--version" in sys.argv:
    print("2.1.0 (Claude Code)"); sys.exit()
here = pathlib.Path(__file__).resolve().parent
prompt = sys.argv[sys.argv.index("-p") + 1] if "-p" in sys.argv else ""
if not re.search("result-[0-9]+", prompt) and not sys.stdin.isatty():
    prompt += sys.stdin.read()
# Bernstein gives several tasks to one agent.
names = dict.fromkeys(re.findall("(?:Write|Task) (result-[0-9]+)", prompt + os.environ.get("PAPERCLIP_WAKE_PAYLOAD_JSON", "")))
emit = lambda it: print(json.dumps(it), flush=True)
emit({"type": "system", "subtype": "init", "session_id": "s", "model": "scripted"})
for name in names:
    subprocess.run(["sh", str(here / "work.sh"), name, (here / "seconds").read_text().strip()], check=True)
    for attempt in range(50):
        if subprocess.run(["git", "add", name + ".txt"]).returncode == 0 and subprocess.run(
                ["git", "commit", "-qm", "Write " + name, "--", name + ".txt"], stdout=2).returncode == 0: break
        time.sleep(0.1)
task = os.environ.get("PAPERCLIP_TASK_ID") if names else None
if task:
    request = urllib.request.Request(os.environ["PAPERCLIP_API_URL"] + "/api/issues/" + task, method="PATCH",
        data=json.dumps({"status": "done", "comment": "done"}).encode(), headers={"Content-Type": "application/json",
        "Authorization": "Bearer " + os.environ["PAPERCLIP_API_KEY"], "X-Paperclip-Run-Id": os.environ["PAPERCLIP_RUN_ID"]})
    urllib.request.urlopen(request, timeout=30).read()
emit({"type": "assistant", "session_id": "s", "message": {"content": [{"type": "text", "text": "done"}]}})
emit({"type": "result", "subtype": "success", "is_error": False, "result": "done", "session_id": "s", "num_turns": 1,
      "total_cost_usd": 0.01, "usage": {"input_tokens": 1, "output_tokens": 1, "cache_read_input_tokens": 0}})
'''
PLAN = {"summary": "Write a file.", "approach": "One file.", "testing_strategy": "Count the lines.",
        "signals": {"modules": 1, "novelty": "none", "tests": "none", "security": "none", "ambiguity": "none"},
        "criteria": ["The file has two lines."], "verification": [{"criterion": "C1", "test": "wc -l"}],
        "estimated_tokens": 2000, "estimated_cost_usd": "0.02"}


def wait_for(what, seconds, pause=0.2):
    end = time.time() + seconds
    while time.time() < end:
        if what():
            return True
        time.sleep(pause)
    return False


class Group:
    """One cgroup, sampled for agents, memory and processes."""

    def __init__(self, name):
        mounts = [it.split() for it in open("/proc/mounts")]
        self.path = pathlib.Path(next(it[1] for it in mounts if it[2] == "cgroup2")) / f"compare-{name}-{os.getpid()}"
        self.path.mkdir()
        self.agents, self.peak, self.running = {}, 0, True
        threading.Thread(target=self.sample, daemon=True).start()

    def cpu(self):
        return int(re.search(r"usage_usec (\d+)", (self.path / "cpu.stat").read_text())[1]) / 1e6

    def processes(self):
        found = {}
        for pid in (self.path / "cgroup.procs").read_text().split():
            try:
                found[int(pid)] = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                pass
        return found

    def memory(self):
        total = 0
        for pid in self.processes():
            try:
                total += int(re.search(r"^Pss:\s+(\d+)", open(f"/proc/{pid}/smaps_rollup").read(), re.M)[1])
            except (OSError, TypeError):
                pass
        return total / 1024

    def parent(self, pid):
        try:
            return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
        except OSError:
            return 0

    def sample(self):
        turn = 0
        while self.running:
            now = time.time()
            found = {pid: line.split()[2] for pid, line in self.processes().items() if re.match(r"(/usr)?(/bin/)?(da)?sh \S*work\.sh result-", line)}
            for pid, name in found.items():
                if self.parent(pid) not in found:  # a forked copy that has not started its program yet
                    self.agents.setdefault((name, pid), [now, now])[1] = now
            if turn % 5 == 0:
                self.peak = max(self.peak, self.memory())
            turn += 1
            time.sleep(0.1)

    def start(self, command, user=None, **options):
        def enter():
            (self.path / "cgroup.procs").write_text(str(os.getpid()))
            if user:
                os.setgroups([]); os.setgid(user.pw_gid); os.setuid(user.pw_uid)
        return subprocess.Popen(command, preexec_fn=enter, start_new_session=True, stdin=subprocess.DEVNULL, **options)

    def run(self, command, timeout=180, **options):
        process = self.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill(); output = "(timeout)"
        return process.returncode, output or ""

    def close(self):
        self.running = False
        time.sleep(0.3)
        (self.path / "cgroup.kill").write_text("1")
        wait_for(lambda: not self.processes(), 10)
        time.sleep(0.2)
        self.path.rmdir()


class Product:
    user = None

    def __init__(self, folder, port):
        self.folder, self.port, self.group = folder / self.name, port, Group(self.name)
        self.bin, self.repo, self.next = self.folder / "bin", self.folder / "repo", 101
        for it in (self.bin, self.repo, self.folder / "home"):
            it.mkdir(parents=True)
        (self.bin / "work.sh").write_text(WORK)
        (self.bin / "claude").write_text(CLAUDE)
        (self.bin / "claude").chmod(0o755)
        keep = {key: os.environ[key] for key in ("PATH", "LANG", "TERM") if key in os.environ}
        self.env = dict(keep, HOME=str(self.folder / "home"), PATH=f"{self.bin}:{keep['PATH']}", DO_NOT_TRACK="1")
        self.git("config", "--global", "user.name", "Grace"); self.git("config", "--global", "user.email", "grace@example.org")
        self.git("config", "--global", "safe.directory", "*")
        self.git("init", "-q", "-b", "main")
        (self.repo / "check.sh").write_text('for file in result-*.txt; do test ! -e "$file" || test "$(wc -l < "$file")" = 2 || exit 1; done\n')
        self.prepare()
        self.git("add", "."); self.git("commit", "-qm", "Start")

    def git(self, *words):
        return subprocess.run(["git", *words], cwd=self.repo, env=self.env, text=True, capture_output=True).stdout

    def set_seconds(self, seconds):
        (self.bin / "seconds").write_text(str(seconds))

    def names(self, count):
        self.next += count
        return [f"result-{it}" for it in range(self.next - count, self.next)]

    def commits(self, name):
        """Commits on any branch that add the finished file, and those that hold only its first half."""
        whole = half = 0
        for commit in self.git("log", "--all", "--no-merges", "--format=%H", "--", f"{name}.txt").split():
            lines = self.git("show", f"{commit}:{name}.txt").count("\n")
            whole, half = whole + (lines == 2), half + (lines == 1)
        return whole, half

    def settle(self):
        pass

    def owned(self):
        return [pid for pid, line in self.group.processes().items() if self.is_orchestrator(line)]


class Tamma(Product):
    name = "tamma"

    def prepare(self):
        self.folder.chmod(0o711)
        programs = pathlib.Path(os.environ["TAMMA_PROGRAMS"])
        self.tamma = str(programs / "tamma")
        shutil.copy(programs / "scripted-agent", self.bin)
        (self.folder / "data").mkdir()
        (self.folder / "data/operator.yaml").write_text(f"readable: ['{self.bin}']\n")
        self.env.update(TAMMA_DATA=str(self.folder / "data"))
        (self.repo / "tamma.yaml").write_text(f'''agents:
  scripted: {{ command: {self.bin}/scripted-agent, env: {{ TAMMA_SCRIPT: "{self.bin}/agent.json" }} }}
tiers: {{ simple: {{ agent: scripted }}, moderate: {{ agent: scripted }}, complex: {{ agent: scripted }} }}
engines: {{ readable: ["{self.bin}"] }}
gates: {{ lines: {{ command: "sh check.sh", kind: tests }} }}
''')

    def set_seconds(self, seconds):
        super().set_seconds(seconds)
        cases = []
        for number in range(101, 400):
            name = f"result-{number}"
            plan = dict(PLAN, file_changes=[{"path": f"{name}.txt", "action": "create", "description": "two lines", "estimated_lines": 2}])
            cases += [
                {"when": f"The folder is read-only.\n\n# Task: Write {name}", "steps": [{"plan": plan}, {"end": {}}]},
                {"when": f"do not stop to ask whether to continue.\n\n# Task: Write {name}",
                 "steps": [{"run": f"sh {self.bin}/work.sh {name} {seconds}"}, {"end": {}}]}]
        (self.bin / "agent.json").write_text(json.dumps({"cases": cases}))

    def version(self):
        return subprocess.run([self.tamma, "--version"], capture_output=True, text=True).stdout.strip()

    def tell(self, *words, counted=True, timeout=180):
        if counted:
            return self.group.run([self.tamma, *words], cwd=self.repo, env=self.env, timeout=timeout)[1]
        return subprocess.run([self.tamma, *words], cwd=self.repo, env=self.env, text=True, capture_output=True, timeout=timeout).stdout

    def start(self):
        out = self.tell("up", "--detach", "--listen", f"127.0.0.1:{self.port}", "--slots", "8")
        assert "Tamma is up" in out, out

    def submit(self, names):
        for name in names:
            out = self.tell("task", "add", f"Write {name}")
            assert "Added" in out, out

    def finished(self, names):
        branches = self.git("for-each-ref", "--format=%(refname)", "refs/heads/tamma/")
        if not all(re.search(rf"-write-{name}\n", branches) for name in names):
            return False
        return "No tasks" in self.tell("task", "list", counted=False)

    def is_orchestrator(self, line):
        return line.startswith(f"{self.tamma} up ")  # not the helpers inside a sandbox

    restart = start

    def state(self, names):
        return re.sub(r"\s+", " ", self.tell("task", "list", "--all", counted=False))[-300:]

    def stop(self):
        self.tell("down")


class Bernstein(Product):
    name = "bernstein"

    def prepare(self):
        self.env.update(ANTHROPIC_API_KEY="none", BERNSTEIN_MAX_AGENTS="8", BERNSTEIN_TELEMETRY="0")
        (self.repo / ".gitignore").write_text(".sdd/\n.claude/\nplan*.yaml\nbernstein.yaml\n")
        self.process = None

    def version(self):
        return subprocess.run(["bernstein", "--version"], env=self.env, capture_output=True, text=True).stdout.strip()

    def start(self):
        self.git("checkout", "-qb", "work")

    def command(self):
        self.log = open(self.folder / "run.log", "a")
        return self.group.start(["bernstein", "run", "plan.yaml", "--cli", "claude", "--auto-approve", "--quiet", "--port", str(self.port)],
                                cwd=self.repo, env=self.env, stdout=self.log, stderr=self.log)

    def submit(self, names):
        steps = [{"title": f"Write {name}", "description": f"Write {name}.txt with two lines.", "role": "backend", "scope": "small",
                  "complexity": "low", "files": [f"{name}.txt"]} for name in names]
        (self.repo / "plan.yaml").write_text(json.dumps({"name": f"Compare {names[0]}", "description": "Files", "stages": [{"name": "work", "steps": steps}]}))
        (self.repo / "bernstein.yaml").write_text("goal: Files\ncli: claude\nmax_agents: 8\n")
        self.process = self.command()

    def finished(self, names):
        files = self.git("ls-tree", "--name-only", "work").split()
        return all(f"{name}.txt" in files for name in names) and self.process.poll() is not None

    def is_orchestrator(self, line):
        # The run, its server, orchestrator and watchdog; not the wrappers around an agent.
        return bool(re.match(r"bernstein: orchestrator|\S*python \S*bin/bernstein run|\S*python -m (uvicorn )?bernstein\.core", line))

    def restart(self):
        self.process = self.command()

    def settle(self):
        """Stops what the last run left: the next one starts everything again."""
        if self.process:
            self.stop()

    def state(self, names):
        code, out = self.group.run(["bernstein", "status"], cwd=self.repo, env=self.env, timeout=60)
        return re.sub(r"\s+", " ", out)[-700:]

    def stop(self):
        self.group.run(["bernstein", "stop", "--force"], cwd=self.repo, env=self.env, timeout=60)
        wait_for(lambda: not self.owned(), 10)


class Paperclip(Product):
    name = "paperclip"

    def prepare(self):
        self.user = pwd.getpwnam(os.environ.get("COMPARE_USER", "nobody"))  # its PostgreSQL refuses root
        self.env.update(PORT=str(self.port), HOST="127.0.0.1", PAPERCLIP_TELEMETRY_DISABLED="1", PAPERCLIP_OPEN_ON_LISTEN="false")
        self.company = None

    def version(self):
        return subprocess.run(["paperclipai", "--version"], env=self.env, capture_output=True, text=True).stdout.strip()

    def call(self, method, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/api{path}", method=method,
            data=json.dumps(body).encode() if body is not None else None, headers={"Content-Type": "application/json"})
        try:
            return json.loads(urllib.request.urlopen(request, timeout=30).read() or b"null")
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.code} {error.read().decode()[:600]}") from None

    def start(self):
        subprocess.run(["chown", "-R", str(self.user.pw_uid), str(self.folder)], check=True)
        log = open(self.folder / "server.log", "a")
        verb = ["run"] if self.company else ["onboard", "-y", "--no-install-service"]
        self.group.start(["paperclipai", *verb, "-d", str(self.folder / "data")], user=self.user, cwd=self.folder, env=self.env, stdout=log, stderr=log)

        def healthy():
            try:
                return self.call("GET", "/health")["status"] == "ok"
            except Exception:
                return False
        assert wait_for(healthy, 180), "not healthy"
        if not self.company:
            self.call("PATCH", "/instance/settings/experimental", {"enableIsolatedWorkspaces": True})
            self.company = self.call("POST", "/companies", {"name": "Compare"})["id"]
            self.project = self.call("POST", f"/companies/{self.company}/projects", {
                "name": "Files", "status": "in_progress", "workspace": {"name": "repo", "sourceType": "local_path", "cwd": str(self.repo), "isPrimary": True},
                "executionWorkspacePolicy": {"enabled": True, "defaultMode": "isolated_workspace", "workspaceStrategy": {"type": "git_worktree"}}})["id"]
            self.agent = self.call("POST", f"/companies/{self.company}/agents", {
                "name": "Scripted", "role": "engineer", "adapterType": "claude_local",
                "adapterConfig": {"engine": "cli", "command": str(self.bin / "claude"), "cwd": str(self.repo)},
                "runtimeConfig": {"heartbeat": {"enabled": False, "wakeOnDemand": True, "maxConcurrentRuns": 8}}})["id"]

    def submit(self, names):
        self.issues = [self.call("POST", f"/companies/{self.company}/issues", {
            "title": f"Write {name}", "description": f"Write {name}.txt with two lines.", "status": "todo", "priority": "medium",
            "projectId": self.project, "assigneeAgentId": self.agent})["id"] for name in names]

    def finished(self, names):
        return all(self.call("GET", f"/issues/{it}")["status"] == "done" for it in self.issues) and not self.live()

    def live(self):
        return self.call("GET", f"/companies/{self.company}/live-runs")

    def is_orchestrator(self, line):
        return "paperclipai" in line and "node" in line

    restart = start

    def state(self, names):
        runs = self.call("GET", f"/companies/{self.company}/heartbeat-runs")
        return str([self.call("GET", f"/issues/{it}")["status"] for it in self.issues]) + " runs: " + ", ".join(
            f"{it['status']}{' (' + it['errorCode'] + ')' if it.get('errorCode') else ''}" for it in runs[:4])

    def stop(self):
        for pid in self.owned():
            os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not self.group.processes(), 20)


PRODUCTS = {it.name: it for it in (Tamma, Bernstein, Paperclip)}


def measure(product, count, seconds, limit):
    group = product.group
    names = product.names(count)
    product.settle()
    group.peak = group.memory()
    before, start = group.cpu(), time.time()
    product.submit(names)
    done = wait_for(lambda: product.finished(names), limit, 0.3)
    end, after = time.time(), group.cpu()
    spans = [span for (name, _), span in group.agents.items() if name in names]
    result = {"tasks": count, "finished": done, "seconds": round(end - start, 2), "overhead": round(end - start - seconds, 2),
              "before_agent": round(min(it[0] for it in spans) - start, 2) if spans else None,
              "after_agent": round(end - max(it[1] for it in spans), 2) if spans else None,
              "cpu": round(after - before, 2), "peak_mb": round(group.peak), "agents": len(spans),
              "at_once": max((sum(a <= it[0] <= b for a, b in spans) for it in spans), default=0), "load": os.getloadavg()[0]}
    return result


def kill(product, seconds, limit, late):
    group = product.group
    name, = names = product.names(1)
    product.set_seconds(seconds)
    product.settle()
    product.submit(names)
    runs = lambda: [pid for (it, pid) in group.agents if it == name]
    alive = lambda: [pid for pid, line in group.processes().items() if "work.sh " + name in line and pid in runs()]
    assert wait_for(runs, 240), "no agent"
    time.sleep(4)
    victims = product.owned()
    for pid in victims:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    result = {"restart": "late" if late else "soon", "killed": len(victims)}
    time.sleep(3)
    result["agent_alive_after_3_s"] = bool(alive())
    if late:
        wait_for(lambda: not alive(), seconds)
        time.sleep(2)
    result["committed_while_dead"] = product.commits(name)[0] > 0
    result["half_files"] = subprocess.run(["find", str(product.folder), "-name", f"{name}.txt", "-not", "-path", "*/.git/*"], capture_output=True, text=True).stdout.count("\n")
    start = time.time()
    try:
        product.restart()
        result["finished_after_restart"] = wait_for(lambda: product.finished(names), limit, 0.5)
    except Exception as error:
        result["restart_failed"] = str(error)[:300]
    result["seconds_to_finish"] = round(time.time() - start, 1)
    time.sleep(1)
    result["agent_starts"], result["agent_left"] = len(runs()), bool(alive())
    result["commits_whole"], result["commits_half"] = product.commits(name)
    result["overlapping_agents"] = any(a[0] < b[1] and b[0] < a[1] for p, a in group.agents.items() for q, b in group.agents.items()
                                       if p < q and p[0] == q[0] == name)
    try:
        result["state"] = product.state(names)
    except Exception as error:
        result["state"] = str(error)[:300]
    return result


def print_medians(notes):
    """Prints for each product and number of tasks: overhead in seconds, CPU seconds per task, peak memory in MB."""
    for product, count in sorted({(it["product"], it["tasks"]) for it in notes if it["kind"] == "tasks" and it["finished"]}):
        rows = [it for it in notes if it["kind"] == "tasks" and it["finished"] and (it["product"], it["tasks"]) == (product, count)]
        middle = lambda key: statistics.median(it[key] for it in rows)
        print(f"{product}, {count} at once: overhead {middle('overhead'):.1f} s, CPU per task {middle('cpu') / count:.2f} s, "
              f"peak {middle('peak_mb'):.0f} MB, {len(rows)} runs")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--products", default="tamma,bernstein,paperclip")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", default="1,4,8")
    parser.add_argument("--kill", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--limit", type=int, default=150)
    parser.add_argument("--port", type=int, default=18700)
    args = parser.parse_args()
    args.folder.mkdir(parents=True)
    args.folder.chmod(0o711)
    notes = []

    def note(product, kind, **what):
        notes.append({"product": product, "kind": kind, **what})
        print(json.dumps(notes[-1]), flush=True)
        with open(args.folder / "results.jsonl", "a") as out:
            out.write(json.dumps(notes[-1]) + "\n")

    products = []
    try:
        for name in args.products.split(","):
            product = PRODUCTS[name](args.folder.resolve(), args.port + list(PRODUCTS).index(name))
            products.append(product)
            product.set_seconds(args.seconds)
            note(name, "version", version=product.version())
            product.start()
            note(name, "first", **measure(product, 1, args.seconds, args.limit))
        for product in products:  # a second start, without the installation
            if product.name != "bernstein":
                product.stop()
                before, start = product.group.cpu(), time.time()
                product.restart()
                note(product.name, "start", seconds=round(time.time() - start, 2), cpu=round(product.group.cpu() - before, 2))
        if args.rounds:
            time.sleep(5)
        before = {it.name: it.group.cpu() for it in products}
        time.sleep(30 if args.rounds else 0)
        for it in products if args.rounds else []:
            note(it.name, "idle", cpu_per_minute=round(2 * (it.group.cpu() - before[it.name]), 2), mb=round(it.group.memory()), processes=len(it.group.processes()))
        for count in [int(it) for it in args.tasks.split(",") if it]:
            for _ in range(args.rounds if count == 1 else max(1, args.rounds // 2)):
                for product in products:
                    note(product.name, "tasks", **measure(product, count, args.seconds, args.limit))
        for _ in range(args.kill):
            for product in products:
                for late in (False, True):
                    note(product.name, "kill", **kill(product, 20, args.limit, late))
    finally:
        for product in products:
            try:
                product.stop()
            except Exception as error:
                print(error, file=sys.stderr)
            note(product.name, "left", processes=list(product.group.processes().values())[:5])
            product.group.close()
    print_medians(notes)


if __name__ == "__main__":
    main()
