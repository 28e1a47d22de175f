#!/usr/bin/env python3
"""Installs the Helm chart with every values file on a recording API server, and checks what it gets.

Each object must fit the schema of its kind (Kubernetes' own, strictly), every pod must be hardened, workers must
have exactly the settings that a sandbox needs, and every reference must have its object. Wrong values must be
refused by the schema of the chart.

usage: run.py
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import jsonschema
import kubernetes_validate
import yaml

from api_server import VERSION, Recorder

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
CHART = REPOSITORY / "packaging/helm/tamma"
# .ci/tools has the same version.
TOOLS = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "tamma/tools/helm-4.3.1"
# Kinds of the Prometheus operator and of KEDA, with the files of their definitions.
CUSTOM = {"PodMonitor": "monitoring.coreos.com_podmonitors.yaml", "PrometheusRule": "monitoring.coreos.com_prometheusrules.yaml",
          "ScaledObject": "keda.sh_scaledobjects.yaml"}
# What the administrator makes before the installation.
EXISTING = {"tamma-database", "tamma-token", "tamma-keys", "tamma-agents", "tamma-operator", "tamma-tls", "registry", "tamma-objects",
            "tamma-repositories"}
# Wrong values, and what the refusal names.
WRONG = [
    ("database.existingSecret=", "/database/existingSecret"),
    ("temporal.address=temporal.example.com", "/temporal/address"),
    ("keys.existingSecret=", "/keys/existingSecret"),
    ("objects.location=gs://tamma", "/objects/location"),
    ("server.replicas=0", "/server/replicas"),
    ("server.replica=2", "replica"),
    ("workerGroups.default.slots=0", "/workerGroups/default/slots"),
    ("workerGroups.default.autoscaling.kind=vpa", "/workerGroups/default/autoscaling/kind"),
    ("workerGroups.Big.slots=1", "Big"),
    ("image.digest=latest", "/image/digest"),
    ("server.ingress.enabled=true", "/server/ingress/host"),
    ("networkPolicy.privateRanges={everything}", "/networkPolicy/privateRanges"),
]


class Failure(Exception):
    pass


def check(passed, text):
    if not passed:
        raise Failure(text)


def helm(program, arguments, kubeconfig, home):
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(kubeconfig), "NO_PROXY": "*"}
    return subprocess.run([program, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env=environment, timeout=300, cwd=REPOSITORY)


def pods(thing):
    """Template of the pods of an object."""
    return thing["spec"]["template"] if thing["kind"] in ("Deployment", "DaemonSet", "Job") else None


def custom_schema(kind, version):
    """Schema of a custom resource, with unknown keys refused as a strict API server does."""
    definition = yaml.safe_load((TOOLS / CUSTOM[kind]).read_text())
    [found] = [entry for entry in definition["spec"]["versions"] if entry["name"] == version]
    schema = found["schema"]["openAPIV3Schema"]

    def strict(part):
        if isinstance(part, dict):
            if "properties" in part and "additionalProperties" not in part and not part.get("x-kubernetes-preserve-unknown-fields"):
                part["additionalProperties"] = False
            # Both are accepted where Kubernetes takes an integer or text.
            if part.pop("x-kubernetes-int-or-string", False):
                part.pop("type", None)
            # Python wants flags at the start.
            if isinstance(part.get("pattern"), str):
                part["pattern"] = part["pattern"].replace("^(?i)", "(?i)^")
        for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            strict(inner)
    strict(schema["properties"]["spec"])
    return schema


def check_schema(thing):
    kind = thing["kind"]
    clean = json.loads(json.dumps(thing))
    for name in ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"):
        clean["metadata"].pop(name, None)
    clean.pop("status", None)
    try:
        if kind in CUSTOM:
            jsonschema.validate(clean, custom_schema(kind, thing["apiVersion"].split("/")[1]))
        else:
            kubernetes_validate.validate(clean, ".".join(VERSION), strict=True)
    except (kubernetes_validate.ValidationError, jsonschema.ValidationError) as error:
        raise Failure(f"{kind} {thing['metadata']['name']}: {error.message} (at {'.'.join(map(str, error.path))})") from error


def check_pod(thing):
    """Checks the security settings of a pod."""
    spec, name = pods(thing)["spec"], f"{thing['kind']} {thing['metadata']['name']}"
    component = thing["metadata"]["labels"]["app.kubernetes.io/component"]
    check(spec.get("automountServiceAccountToken") is False, f"{name} gets a token of its service account")
    check(not any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")), f"{name} shares namespaces of the node")
    for container in spec.get("initContainers", []) + spec["containers"]:
        security = container["securityContext"]
        where = f"container {container['name']} of {name}"
        check(security.get("allowPrivilegeEscalation") is False and security.get("privileged") is False, f"{where} can gain privileges")
        check(security.get("readOnlyRootFilesystem") is True, f"{where} can write its root file system")
        check(security.get("capabilities") == {"drop": ["ALL"]}, f"{where} has capabilities")
        check("limits" in container["resources"] and "memory" in container["resources"]["limits"], f"{where} has no limit of memory")
        if component == "worker":
            check(security.get("procMount") == "Unmasked" and security["seccompProfile"]["type"] == "Localhost", f"{where} has no sandbox")
        else:
            check("procMount" not in security and security["seccompProfile"] == {"type": "RuntimeDefault"}, f"{where} has more than the defaults")
    if component == "worker":
        check(spec.get("hostUsers") is False, f"{name} has no user namespace")
    if component == "seccomp":
        check([volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume] == ["/var/lib/kubelet/seccomp"],
              f"{name} mounts more of the node")
    else:
        check(spec["securityContext"]["runAsNonRoot"] is True, f"{name} can run as root")
        check(not any("hostPath" in volume for volume in spec["volumes"]), f"{name} mounts folders of the node")


def matches(selector, labels):
    return all(labels.get(name) == value for name, value in selector["matchLabels"].items())


def references(value):
    """Names of secrets, configuration maps and claims below a value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("secretKeyRef", "secretRef", "configMap") and isinstance(inner, dict):
                yield inner["name"]
            elif key in ("secretName", "claimName"):
                yield inner
            elif key == "imagePullSecrets":
                yield from (entry["name"] for entry in inner)
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def check_references(things):
    """Checks that selectors have pods, and that names have objects."""
    names = {(thing["kind"], thing["metadata"]["name"]) for thing in things}
    templates = {thing["metadata"]["name"]: pods(thing) for thing in things if pods(thing)}
    labels = [template["metadata"]["labels"] for template in templates.values()]
    for thing in things:
        kind, spec, name = thing["kind"], thing.get("spec", {}), thing["metadata"]["name"]
        if kind in ("NetworkPolicy", "PodDisruptionBudget", "PodMonitor", "Service"):
            selector = spec.get("podSelector") or spec["selector"]
            selector = selector if "matchLabels" in selector else {"matchLabels": selector}
            check(any(matches(selector, own) for own in labels), f"{kind} {name} selects no pod")
        if "scaleTargetRef" in spec:
            target = spec["scaleTargetRef"]["name"]
            check(("Deployment", target) in names, f"{kind} {name} scales {target}, which does not exist")
            scaled = next(other for other in things if (other["kind"], other["metadata"]["name"]) == ("Deployment", target))
            check("replicas" not in scaled["spec"], f"{target} has a number of replicas beside {kind}")
        if pods(thing):
            account = pods(thing)["spec"]["serviceAccountName"]
            check(account == "default" or ("ServiceAccount", account) in names, f"{name} uses {account}, which does not exist")
            check(matches(spec["selector"], pods(thing)["metadata"]["labels"]) if kind != "Job" else True, f"{name} does not select its pods")
        own = {other["metadata"]["name"] for other in things}
        missing = set(references(spec)) - EXISTING - own
        check(not missing, f"{kind} {name} refers to {', '.join(missing)}")
    policies = [thing for thing in things if thing["kind"] == "NetworkPolicy"]
    for name, template in templates.items():
        component = template["metadata"]["labels"]["app.kubernetes.io/component"]
        covered = any(matches(policy["spec"]["podSelector"], template["metadata"]["labels"]) for policy in policies)
        check(covered or component == "seccomp", f"no network policy selects {name}")


def check_rules(things, chart):
    """Checks that the rules are those of packaging/monitoring."""
    source = yaml.safe_load((chart.parents[1] / "monitoring/rules.yml").read_text())
    for thing in things:
        if thing["kind"] == "PrometheusRule":
            text = json.dumps(thing["spec"]["groups"])
            expected = json.dumps(source["groups"])
            alerts = re.compile(r'"alert": "(\w+)"')
            check(alerts.findall(text) == alerts.findall(expected), "the chart has other alerts than packaging/monitoring")
            check(text.count('"expr"') == expected.count('"expr"'), "the chart has other rules than packaging/monitoring")


def check_compose(packaging):
    """Checks the compose file against the schema of the specification, and the settings of its containers."""
    compose = yaml.safe_load((packaging / "compose/compose.yaml").read_text())
    jsonschema.validate(compose, json.loads((TOOLS / "compose-spec.json").read_text()))
    for name, service in compose["services"].items():
        check(service["cap_drop"] == ["ALL"] and "no-new-privileges:true" in service["security_opt"], f"{name} of the compose file has privileges")
        own = set(service["security_opt"]) - {"no-new-privileges:true"}
        expected = {"seccomp:../container/seccomp.json", "systempaths=unconfined", "apparmor=unconfined"}
        check(own == (expected if name == "worker" else set()), f"{name} of the compose file has {own}")
    check("server.env" not in compose["services"]["worker"]["env_file"], "the worker of the compose file gets the operator's token")
    check((packaging / "compose" / "../container/seccomp.json").exists(), "the profile of the compose file does not exist")


def check_units(packaging):
    """Checks the exposure of the systemd units, where systemd is installed."""
    if not shutil.which("systemd-analyze"):
        print("- systemd-analyze is not installed; the units are not checked", flush=True)
        return
    for name, threshold in (("server", 15), ("worker", 35)):
        unit = packaging / f"systemd/tamma-{name}.service"
        done = subprocess.run(["systemd-analyze", "security", "--offline=true", f"--threshold={threshold}", "--no-pager", unit],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        check(done.returncode == 0, f"{unit.name} is more exposed than {threshold / 10}:\n{done.stdout[-200:]}")
        print(f"✓ {done.stdout.strip().splitlines()[-1].removeprefix('→ ')}", flush=True)


def install(program, chart, values, home):
    """Installs and upgrades the chart, and returns what it wrote, without the records of Helm."""
    recorder = Recorder()
    try:
        kubeconfig = recorder.kubeconfig(home / f"kubeconfig-{values.stem}")
        for command in (["install"], ["upgrade"]):
            done = helm(program, [*command, "tamma", chart, "--namespace", "tamma", "--values", values, "--timeout", "60s"], kubeconfig, home)
            check(done.returncode == 0, f"helm {command[0]} with {values.name} failed:\n{done.stdout}")
        listed = helm(program, ["list", "--namespace", "tamma", "--output", "json"], kubeconfig, home)
        [release] = json.loads(listed.stdout)
        check((release["status"], release["revision"]) == ("deployed", "2"), f"the release is {release}")
        things = {(thing["kind"], thing["metadata"]["name"]): thing for thing in recorder.written}
        done = helm(program, ["uninstall", "tamma", "--namespace", "tamma"], kubeconfig, home)
        check(done.returncode == 0, f"helm uninstall failed:\n{done.stdout}")
        with recorder.lock:
            left = list(recorder.objects)
        check(not left, f"helm uninstall leaves {', '.join(left)}")
    finally:
        recorder.stop()
    return [thing for (kind, name), thing in things.items() if not name.startswith("sh.helm.release")]


def run_page(program, home):
    """Runs the `helm` commands of the page in their order, and returns their number."""
    text = (REPOSITORY / "docs/kubernetes.md").read_text()
    commands = [shlex.split(line)[1:] for line in re.findall(r"^\$ (helm .*)$", text, re.M)]
    recorder = Recorder()
    try:
        kubeconfig = recorder.kubeconfig(home / "kubeconfig-page")
        for command in commands:
            done = helm(program, command, kubeconfig, home)
            check(done.returncode == 0, f"helm {' '.join(command)} failed:\n{done.stdout}")
    finally:
        recorder.stop()
    return len(commands)


def main():
    program, chart = TOOLS / "helm", CHART
    if not program.exists():
        sys.exit("chart: failed: Helm is not built: run TAMMA_TOOLS=helm bash .ci/tools")
    with tempfile.TemporaryDirectory(prefix="tamma-chart-") as scratch:
        home = pathlib.Path(scratch)
        try:
            check_compose(chart.parents[1])
            check_units(chart.parents[1])
            files = sorted(chart.glob("values-*.yaml"))
            total = 0
            for values in files:
                things = install(program, chart, values, home)
                for thing in things:
                    check_schema(thing)
                    if pods(thing):
                        check_pod(thing)
                check_references(things)
                check_rules(things, chart)
                total += len(things)
                kinds = sorted({thing["kind"] for thing in things})
                print(f"✓ {values.name}: {len(things)} objects are valid ({', '.join(kinds)})", flush=True)
            for setting, named in WRONG:
                done = helm(program, ["template", "tamma", chart, "--values", chart / "values-small.yaml", "--set", setting], home / "none", home)
                check(done.returncode != 0 and named in done.stdout.replace(".", "/"), f"`--set {setting}` is not refused:\n{done.stdout[-400:]}")
                print(f"✓ refused: {setting}", flush=True)
            commands = run_page(program, home)
        except Failure as failure:
            print(f"✗ {failure}", file=sys.stderr)
            print("chart: failed: " + str(failure).splitlines()[0])
            sys.exit(1)
    print(f"chart: {len(files)} values files installed, upgraded and removed, {total} objects valid for Kubernetes "
          f"{'.'.join(VERSION)}, {len(WRONG)} wrong values refused, {commands} commands of docs/kubernetes.md run")


if __name__ == "__main__":
    main()
