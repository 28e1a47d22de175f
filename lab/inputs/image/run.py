#!/usr/bin/env python3
"""Builds the container image without a container engine, and runs it hardened with `runc`.

Each case is a container without capabilities and new privileges, as the user 65532, with a read-only root, a
network of its own and the settings of one way to run it. With the settings of docs/kubernetes.md, `tamma doctor`
has a sandbox, and an agent in it completes a task. Without one of them, `tamma doctor` names the missing setting,
and no agent starts. The full experiment also runs the attempts of `sandbox-escape` in such a container.

usage: run.py <program folder> [--quick] [--base ARCHIVE] [--only CASE,…]
"""

import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
USER = 65532
# First of the host's user IDs that a container with a user namespace has, as for `hostUsers: false`.
SHIFT = 1_000_000_000
PATIENCE = 180
MASKED = ["/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
          "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap",
          "/sys/firmware"]
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
CLONE_NAMESPACES = 0x7E020000

# Settings of Kubernetes that `tamma doctor` names if they are missing.
PROC, SECCOMP = "procMount: Unmasked", "seccompProfile"
# User namespace, unmasked /proc, our seccomp profile, and the settings that are missing.
CASES = {
    "kubernetes": (True, True, True, []),
    "compose": (False, True, True, []),
    "masked-proc": (True, False, True, [PROC]),
    "default-seccomp": (True, True, False, [SECCOMP]),
    "defaults": (False, False, False, [PROC, SECCOMP]),
}

spec = importlib.util.spec_from_file_location("first_minute", HERE.parent / "first-minute/run.py")
first_minute = importlib.util.module_from_spec(spec)
spec.loader.exec_module(first_minute)
Failure, check, run, wait_for = first_minute.Failure, first_minute.check, first_minute.run, first_minute.wait_for


def read_image(layout):
    """Returns configuration and layers of an OCI image layout, after comparing all hashes and sizes."""
    def blob(descriptor):
        algorithm, digest = descriptor["digest"].split(":")
        path = layout / "blobs" / algorithm / digest
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if (found, path.stat().st_size) != (digest, descriptor["size"]):
            raise Failure(f"blob {digest} has the hash {found}")
        return path
    [entry] = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(entry).read_text())
    config = json.loads(blob(manifest["config"]).read_text())
    layers = [blob(layer) for layer in manifest["layers"]]
    for layer, expected in zip(layers, config["rootfs"]["diff_ids"], strict=True):
        unpacked = hashlib.sha256(subprocess.run(["gzip", "-dc", layer], stdout=subprocess.PIPE, check=True).stdout)
        if f"sha256:{unpacked.hexdigest()}" != expected:
            raise Failure(f"layer {layer.name} does not have the hash {expected}")
    return config, layers


def unpack(layers, to, shift):
    """Unpacks the layers, with the IDs of the host that a user namespace maps them to."""
    to.mkdir(parents=True)
    for layer in layers:
        with tarfile.open(layer) as archive:
            def shifted(entry, _path):
                entry.uid, entry.gid = entry.uid + shift, entry.gid + shift
                return entry
            archive.extractall(to, numeric_owner=True, filter=shifted)
    os.chown(to, shift, shift)


def check_image(config, layers):
    """Checks what an image must not have."""
    user = config["config"]["User"]
    check(not user.startswith(("0", "root")), f"the image runs as {user}")
    privileged, writable, stamps = [], [], set()
    for layer in layers:
        with tarfile.open(layer) as archive:
            for entry in archive:
                stamps.add(entry.mtime)
                if entry.isreg() and (entry.mode & 0o6000 or "SCHILY.xattr.security.capability" in entry.pax_headers):
                    privileged.append(entry.name)
                if not entry.issym() and entry.mode & 0o002 and not entry.mode & 0o1000:
                    writable.append(entry.name)
    check(not privileged, f"no file has a set-user-ID bit or capabilities ({', '.join(privileged) or 'none'})")
    check(not writable, f"nobody else can write a file ({', '.join(writable) or 'none'})")
    check(len(stamps) == 1, "all files have the same time")


def default_seccomp(profile):
    """The default profile of container engines: ours without namespaces and mounts."""
    rules = [rule for rule in profile["syscalls"] if "unshare" not in rule["names"]]
    flags = [{"index": 0, "value": CLONE_NAMESPACES, "op": "SCMP_CMP_MASKED_EQ"}]
    return {**profile, "syscalls": [*rules, {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": flags}]}


def volume(folder, name, in_user_namespace):
    """Makes a volume: an emptyDir with `fsGroup`, or a new volume of a container engine."""
    path = folder / name
    path.mkdir()
    if in_user_namespace:
        os.chown(path, SHIFT, SHIFT + USER)
        path.chmod(0o2777)
    else:
        os.chown(path, USER, USER)
        path.chmod(0o700)
    return path


def bundle(image, root, arguments, case, mounts, environment):
    """Writes the configuration of a container, as a hardened pod gets it, and returns its folder."""
    in_user_namespace, unmasked, own_seccomp, _ = CASES[case]
    profile = json.loads((REPOSITORY / "packaging/container/seccomp.json").read_text())
    namespaces = ["pid", "ipc", "uts", "mount", "network", "cgroup"] + (["user"] if in_user_namespace else [])
    options = ["nosuid", "nodev"]
    folder = root.parent / f"bundle-{case}-{time.monotonic_ns()}"
    folder.mkdir()
    config = {
        "ociVersion": "1.0.2",
        "hostname": "tamma",
        "root": {"path": str(root), "readonly": True},
        "process": {
            "user": {"uid": USER, "gid": USER},
            "cwd": image["config"]["WorkingDir"],
            "args": arguments,
            "env": image["config"]["Env"] + [f"{name}={value}" for name, value in environment.items()],
            "noNewPrivileges": True,
            "capabilities": {},
            "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 20000, "hard": 20000}],
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
             "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": [*options, "mode=1777"]},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": [*options, "noexec", "ro"]},
            {"destination": "/tmp", "type": "tmpfs", "source": "tmp", "options": [*options, "mode=1777"]},
            *[{"destination": destination, "type": "bind", "source": str(volume(folder, name, in_user_namespace)),
               "options": ["bind", "rw", *options]} for name, destination in (("home", "/home/tamma"), ("data", "/var/lib/tamma"))],
            *[{"destination": inside, "type": "bind", "source": str(outside), "options": ["bind", "ro"]}
              for inside, outside in mounts.items()],
        ],
        "linux": {
            "namespaces": [{"type": name} for name in namespaces],
            # On a busy machine, a container has the share of one process, and could not use up a limit of CPU time.
            "resources": {"cpu": {"shares": 100_000}},
            "seccomp": profile if own_seccomp else default_seccomp(profile),
            "maskedPaths": [] if unmasked else MASKED,
            "readonlyPaths": [] if unmasked else READ_ONLY,
        },
    }
    if in_user_namespace:
        mapping = [{"containerID": 0, "hostID": SHIFT, "size": 65536}]
        config["linux"].update(uidMappings=mapping, gidMappings=mapping)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    return folder


class Container:
    """Container of one case. It ends with the `with` block."""

    def __init__(self, experiment, case, arguments, mounts=None, environment=None):
        shift = SHIFT if CASES[case][0] else 0
        root = experiment.root(shift)
        self.folder = bundle(experiment.config, root, arguments, case, mounts or {}, environment or {})
        self.name = f"tamma-{os.getpid()}-{self.folder.name}"
        self.runc = ["runc", "--root", str(experiment.work / "runc")]
        self.log = self.folder / "log"

    def __enter__(self):
        with open(self.log, "wb") as output:
            self.process = subprocess.Popen([*self.runc, "run", "--bundle", str(self.folder), self.name],
                                            stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        return self

    def __exit__(self, *_):
        subprocess.run([*self.runc, "delete", "--force", self.name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.process.wait(PATIENCE)

    def output(self):
        return self.log.read_text(errors="replace")

    def wait(self, seconds=PATIENCE):
        """Waits for its end, and returns exit code and output."""
        return self.process.wait(seconds), self.output()

    def inside(self, *command):
        """Runs a command of this machine in the container's network."""
        pid = json.loads(run(*self.runc, "state", self.name))["pid"]
        return subprocess.Popen(["nsenter", f"--net=/proc/{pid}/ns/net", *map(str, command)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


class Experiment:
    def __init__(self, programs, work, base):
        self.programs, self.work = programs, work
        tamma = work / "tamma"
        shutil.copy(programs / "tamma", tamma)
        if shutil.which("strip"):
            run("strip", tamma)
        script = [sys.executable, REPOSITORY / "packaging/container/build", tamma, *(["--base", base] if base else [])]
        print(run(*script, "--out", work / "packages").strip(), flush=True)
        self.config, self.layers = read_image(work / "packages/image")
        check_image(self.config, self.layers)
        self.roots, self.servers = {}, None

    def root(self, shift):
        if shift not in self.roots:
            root = self.work / f"root-{shift}"
            unpack(self.layers, root, shift)
            self.roots[shift] = root
        return self.roots[shift]

    def private_servers(self):
        """PostgreSQL and Temporal of the archive, which the image does not have."""
        if not self.servers:
            packages = self.work / "archive"
            run(sys.executable, REPOSITORY / "packaging/build", self.work / "tamma", "--out", packages, "--only", "archive")
            [archive] = packages.glob("tamma-*.tar.gz")
            run("tar", "--extract", "--file", archive, "--directory", packages, "--strip-components=1")
            self.servers = packages / "lib/tamma"
        return self.servers


def doctor(experiment, case):
    """Runs `tamma doctor`, and compares its answer about the sandbox."""
    expected = CASES[case][3]
    with Container(experiment, case, ["/usr/bin/tamma", "doctor", "--json"]) as container:
        _, output = container.wait()
    try:
        answer = json.loads(output)
    except ValueError as error:
        raise Failure(f"`tamma doctor` in {case} printed:\n{output}") from error
    [sandbox] = [entry for entry in answer["checks"] if entry["name"] == "sandbox"]
    text = json.dumps(sandbox)
    if expected:
        check(sandbox["verdict"] == "missing" and names(text) == expected,
              f"{case}: `tamma doctor` refuses, and names {' and '.join(expected)} ({sandbox['message']})")
    else:
        check(sandbox["verdict"] == "good" and "bubblewrap" in text and "seccomp" in text,
              f"{case}: the sandbox works ({sandbox['message']})")


def names(text):
    """Settings that a text names."""
    return [setting for setting in (PROC, SECCOMP) if setting in text]


def task(experiment, case):
    """Takes a task to its end, or to the refusal of its agent."""
    expected = CASES[case][3]
    script = "tamma try /var/lib/tamma/example; echo exit code $?; exec sleep 1000"
    with Container(experiment, case, ["/bin/sh", "-c", script], {"/usr/lib/tamma": experiment.private_servers()},
                   {"TAMMA_PERSON": "Ada", "TAMMA_LISTEN": "127.0.0.1:0"}) as container:
        wait_for("the end of `tamma try`", lambda: "exit code" in container.output())
        link = re.search(r"http://127\.0\.0\.1:\d+/hello\?\S+", container.output())
        if not expected:
            check(link, f"{case}: `tamma try` prints a link that signs in")
            drive = container.inside(sys.executable, HERE / "run.py", "--drive", link[0])
            output, _ = drive.communicate(timeout=PATIENCE)
            check(drive.returncode == 0, f"{case}: {output.strip()}")
        else:
            output = container.output()
            check("exit code 0" not in output and names(output) == expected,
                  f"{case}: no agent starts, and `tamma try` names {' and '.join(expected)}")


def drive(link):
    """Approves the plan in a browser without JavaScript, and waits for the end of the task."""
    browser = first_minute.Browser(link)
    page, approve = wait_for("an approval", lambda: browser.decision("approve"))
    browser.submit(*approve)
    state = wait_for("the end of the task", lambda: browser.close(page))
    print(f"the task in the container is {state}")
    return state.lower() == "completed"


def attempts(experiment, case, options=""):
    """Runs the attempts of `sandbox-escape` in the container, and returns its last line."""
    # Some attempts name the process of the worker by its number, which must not exist in the sandbox of the agent too.
    script = "i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i + 1)); done; /programs/lab sandbox-escape --agents scripted"
    arguments = ["/bin/sh", "-c", f"{script} {options}; exit $?"]
    mounts = {"/programs": experiment.programs}
    with Container(experiment, case, arguments, mounts, {"TMPDIR": "/tmp"}) as container:
        code, output = container.wait(3600)
    last = output.strip().splitlines()[-1]
    check(code == 0, f"{case}: {last}")
    return last


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--drive"]:
        sys.exit(0 if drive(arguments[1]) else 1)
    quick = "--quick" in arguments
    only = arguments[arguments.index("--only") + 1].split(",") if "--only" in arguments else list(CASES)
    base = arguments[arguments.index("--base") + 1] if "--base" in arguments else None
    if set(only) - set(CASES):
        sys.exit(f"unknown case; use {', '.join(CASES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    missing = [name for name in ("runc", "mmdebstrap", "nsenter") if not shutil.which(name)]
    if os.getuid() != 0 or missing:
        print(f"image: not run: needs root and {', '.join(missing) or 'nothing else'}")
        sys.exit(0 if quick else 1)
    with tempfile.TemporaryDirectory(prefix="tamma-image-") as scratch:
        work = pathlib.Path(scratch)
        work.chmod(0o711)
        try:
            experiment = Experiment(pathlib.Path(arguments[0]).resolve(), work, base)
            for case in only:
                doctor(experiment, case)
            for case in [] if quick else only:
                task(experiment, case)
            escaped = "" if quick or "kubernetes" not in only else "; " + attempts(experiment, "kubernetes")
            working = [case for case in only if not CASES[case][3]]
            print(f"image: {len(working)} settings with a sandbox, {len(only) - len(working)} refused with the missing "
                  f"setting{escaped}")
        except Failure as failure:
            print(f"✗ {failure}", file=sys.stderr)
            print("image: failed: " + str(failure).splitlines()[0])
            sys.exit(1)


if __name__ == "__main__":
    main()
