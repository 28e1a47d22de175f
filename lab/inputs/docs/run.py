#!/usr/bin/env python3
"""Runs every command of the documentation, and compares its exit code and the output that the page shows.

usage: run.py <program folder> [--only PAGE] [--show] [--write]
`--show` prints the real outputs. `--write` records the terminal and the browser, and replaces the recordings in
docs/pictures.

The pages are those of the site (docs/SUMMARY.md) and README.md. console.py describes what a page can say about
a block. Each setup is a new folder. Pages share a Tamma with a scripted agent, except those that stop it.
"""

import pathlib
import re
import signal
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / ".ci"))

import book  # noqa: E402
import console  # noqa: E402
import recording  # noqa: E402
from fixture import STOPPING, Failure, World  # noqa: E402

# Commands that are not run, each with its reason: pattern of `page: command`, reason. An entry that fits no
# command fails the experiment, and so does a command that neither runs nor has an entry.
NEEDS_MODEL = "needs a real agent and a model"
THIRD_PARTY = "needs an account or a repository at a third party"
BUILDS = "builds or tests this repository, which CI does in its own steps"
NOT_RUN = [
    (r"README\.md: git clone ", THIRD_PARTY),
    (r"(README|CONTRIBUTING)\.md: (cargo|pip|just) ", BUILDS),
    (r"lab/README\.md: just ", BUILDS),
    (r"packaging/README\.md: ", "makes packages, which `just lab first-minute` does"),
    (r"docs/install\.md: gh attestation ", THIRD_PARTY),
    (r"docs/[\w/-]+\.md: tamma top", "needs a person at a terminal; `just lab top` drives it"),
    (r"docs/[\w/-]+\.md: tamma service (install( |$)(?!--print)|uninstall)", "needs systemd"),
    (r"docs/evaluation\.md: export ANTHROPIC_API_KEY", NEEDS_MODEL),
    (r"docs/evaluation\.md: tamma eval ", NEEDS_MODEL + "; `just lab eval` runs the command with scripted agents"),
    (r"docs/delivery\.md: tamma (forge check|project add) ", THIRD_PARTY),
    (r"docs/guides/connect-a-forge\.md: tamma (forge check|project add) ", THIRD_PARTY),
    (r"docs/guides/agent-access\.md: (claude|codex|gemini|opencode) ", NEEDS_MODEL),
    (r"docs/pipelines\.md: tamma pipeline run ", "takes minutes; `just lab pipeline` runs it in every phase"),
    (r"docs/people\.md: claude mcp ", "needs Claude Code; `just lab mcp` runs it"),
    (r"docs/sign-in\.md: tamma ", "needs an identity provider; `just lab identity` signs in with two"),
    (r"docs/operating\.md: (postgres-backup |psql --command \"ALTER SYSTEM|export TAMMA_BACKUPS)",
     "needs a PostgreSQL server of its own; `just lab restore` runs the script"),
    (r"docs/operating\.md: curl --silent http://127\.0\.0\.1:9464/metrics", "fixed port; `just lab observe` reads it"),
    (r"docs/organisations\.md: temporal ", "creates a namespace; the tests of the server do that"),
    (r"docs/organisations\.md: tamma ", "divides the Tamma that the pages share; `just lab tenancy` runs it"),
    (r"docs/kubernetes\.md: (just|skopeo|kubectl) ", "needs a registry or a cluster; `just lab image` builds the image"),
    (r"docs/kubernetes\.md: helm ", "needs Helm; `just lab chart` runs it"),
    (r"docs/operating\.md: tamma (serve|work) --monitoring ", "listens on fixed ports; `just lab observe` runs it"),
]

# Commands that keep running, and the output with which they are ready. They are stopped with their folder.
BACKGROUND = [
    (r"tamma up( |$)(?!.*--detach)", r"Ctrl-C stops it"),
    (r"tamma serve( |$)", r"http://\S+"),
    (r"tamma work( |$)", r"."),
    (r"tamma logs .*--follow", r"."),
]


def reason_not_run(command):
    return next((reason for pattern, reason in NOT_RUN if re.match(pattern, f"{command.page}: {command.text}")), None)


def site_pages(only):
    pages = [ROOT / "README.md", *book.check()]
    names = {str(page.relative_to(ROOT)): page for page in pages}
    return {name: page for name, page in names.items() if not only or only in name}


class Group:
    """Pages that share one Tamma, one after the other. Groups run at the same time."""

    def __init__(self, pages):
        self.pages = pages
        self.run, self.compared, self.failures = 0, 0, []

    def run_all(self, folder, programs, show):
        try:
            with World(folder, programs, ROOT) as world:
                for name, commands in self.pages.items():
                    self.run_page(world, name, commands, show)
        except Exception as error:  # A thread cannot fail by itself.
            self.failures.append(repr(error))
            print(f"✗ {error!r}", flush=True)

    def run_page(self, world, name, commands, show):
        began, before = time.monotonic(), self.run
        try:
            self.run_commands(world, commands, show)
            print(f"✓ {name}: {self.run - before} of {len(commands)} commands in {time.monotonic() - began:.1f} s", flush=True)
        except Failure as failure:
            self.failures.append(str(failure))
            print(f"✗ {failure}", flush=True)
            world.close_sessions()

    def run_commands(self, world, commands, show):
        """Runs the commands of a page until one fails."""
        session = None
        for command in commands:
            if reason_not_run(command):
                continue
            began = time.monotonic()
            if command.setup or session is None:
                if session:
                    session.close()
                session = world.session(command.setup or "empty")
            text = session.replace(command.text)
            prepared = time.monotonic()
            ready = next((ready for pattern, ready in BACKGROUND if re.search(pattern, text)), None)
            if ready:
                code, output = session.start(text, ready)
            else:
                code, output = session.run(text, command.types)
            if show:
                took = f"{time.monotonic() - prepared:.1f} s, setup {prepared - began:.1f} s"
                print(f"── {command.place}: {text} (exit code {code}, {took})\n{output}", flush=True)
            if code != command.exit:
                raise Failure(f"{command.place}: `{text}` exited with {code} instead of {command.exit}:\n{output}")
            if command.output:
                learned = console.match([session.replace(line, shown=True) for line in command.output], output.splitlines())
                if learned is None:
                    shown = "\n".join(command.output)
                    raise Failure(f"{command.place}: `{text}` printed\n{output}\ninstead of\n{shown}")
                session.learn(learned)
                self.compared += 1
            self.run += 1
        if session:
            session.close()


def grouped(pages):
    """Pages with servers of their own, pages that start and stop Tamma, and the others, which share a running one."""
    groups, stops = {}, {"stops-1": 0, "stops-2": 0}
    for name, commands in pages.items():
        if any(command.setup == "servers" for command in commands):
            kind = "servers"
        elif any(re.match(r"tamma (down|try)\b", command.text) for command in commands):
            # Starting and stopping takes seconds of waiting.
            kind = min(stops, key=stops.get)
            stops[kind] += len(commands)
        else:
            kind = "shared"
        groups.setdefault(kind, {})[name] = commands
    return {kind: Group(pages) for kind, pages in groups.items()}


def main():
    start = time.monotonic()
    console.self_check()
    arguments = sys.argv[1:]
    only = arguments[arguments.index("--only") + 1] if "--only" in arguments else None
    try:
        pages = {name: console.read(name, path) for name, path in site_pages(only).items()}
    except console.Malformed as error:
        print(f"docs: failed: {error}")
        return 1
    every = [command for commands in pages.values() for command in commands]
    not_run = {}
    for command in every:
        reason = reason_not_run(command)
        if reason:
            not_run.setdefault(reason, []).append(command)
    failures = []
    if not only:
        for pattern, _ in NOT_RUN:
            if not any(re.match(pattern, f"{it.page}: {it.text}") for it in every):
                failures.append(f"no command fits `{pattern}`: remove it from the table of commands that are not run")
                print(f"✗ {failures[-1]}")
    signal.signal(signal.SIGTERM, lambda *_: STOPPING.set())
    programs = pathlib.Path(arguments[0]).resolve()
    groups = grouped({name: commands for name, commands in pages.items() if commands})
    with tempfile.TemporaryDirectory(prefix="tamma-docs-") as scratch:
        pathlib.Path(scratch).chmod(0o711)
        threads = []
        for kind, group in groups.items():
            call = (pathlib.Path(scratch, kind), programs, "--show" in arguments)
            threads.append(threading.Thread(target=group.run_all, args=call))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        failures += [failure for group in groups.values() for failure in group.failures]
        if "--write" in arguments and not failures:
            with World(pathlib.Path(scratch, "recording"), programs, ROOT) as world:
                recording.write_all(world, ROOT / "docs" / "pictures")
    for reason, commands in not_run.items():
        print(f"  not run: {len(commands)}, {reason}")
        for command in commands:
            print(f"    {command.place}: {command.text.splitlines()[0]}")
    with_commands = sum(bool(commands) for commands in pages.values())
    ran = sum(group.run for group in groups.values())
    compared = sum(group.compared for group in groups.values())
    skipped = sum(map(len, not_run.values()))
    missed = len(every) - ran - skipped
    print(
        f"docs: {len(every)} commands in {with_commands} pages, {ran} run, {compared} outputs compared, {skipped} not run "
        f"({len(not_run)} reasons), {max(missed, len(failures))} failed, in {time.monotonic() - start:.0f} s"
    )
    return 1 if failures or missed else 0


if __name__ == "__main__":
    sys.exit(main())
