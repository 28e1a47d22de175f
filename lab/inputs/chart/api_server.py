"""Recording API server: answers what Helm asks a Kubernetes cluster, and keeps every object that it gets.

It has no controllers. A job is complete at once, because Helm waits for its hooks.
"""

import base64
import http.server
import json
import re
import threading
import urllib.parse
import uuid

import yaml

VERSION = ("1", "37")

# Group and version, kind, and plural.
RESOURCES = [
    ("v1", "ConfigMap", "configmaps"),
    ("v1", "Namespace", "namespaces"),
    ("v1", "Pod", "pods"),
    ("v1", "Secret", "secrets"),
    ("v1", "Service", "services"),
    ("v1", "ServiceAccount", "serviceaccounts"),
    ("apps/v1", "DaemonSet", "daemonsets"),
    ("apps/v1", "Deployment", "deployments"),
    ("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    ("batch/v1", "Job", "jobs"),
    ("keda.sh/v1alpha1", "ScaledObject", "scaledobjects"),
    ("monitoring.coreos.com/v1", "PodMonitor", "podmonitors"),
    ("monitoring.coreos.com/v1", "PrometheusRule", "prometheusrules"),
    ("networking.k8s.io/v1", "Ingress", "ingresses"),
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
]
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
CLUSTER_WIDE = {"namespaces"}


def groups():
    found = {}
    for version in sorted({version for version, _, _ in RESOURCES}):
        if "/" in version:
            found.setdefault(version.split("/")[0], []).append(version)
    return found


def fields(message):
    """Fields with a length of a protobuf message, as pairs of number and bytes."""
    place = 0

    def number():
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
    while place < len(message):
        key = number()
        if key & 7 == 2:
            size = number()
            yield key >> 3, message[place:place + size]
            place += size
        elif key & 7 == 0:
            number()
        else:
            raise ValueError("unknown type of a field")


def read_secret(message):
    """Helm's own records are secrets, the only objects that come as protobuf."""
    def mapping(entry):
        parts = dict(fields(entry))
        return parts[1].decode(), parts.get(2, b"")
    [raw] = [content for field, content in fields(message.removeprefix(b"k8s\0")) if field == 2]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"labels": {}}, "data": {}}
    for field, content in fields(raw):
        if field == 1:
            for part, value in fields(content):
                if part == 1:
                    secret["metadata"]["name"] = value.decode()
                elif part == 11:
                    name, label = mapping(value)
                    secret["metadata"]["labels"][name] = label.decode()
        elif field == 2:
            name, value = mapping(content)
            secret["data"][name] = base64.b64encode(value).decode()
        elif field == 3:
            secret["type"] = content.decode()
    return secret


class Recorder(http.server.ThreadingHTTPServer):
    """Objects by their path, and every object that was ever written, in order."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects, self.written, self.lock, self.number = {}, [], threading.Lock(), 0
        self.closing = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def kubeconfig(self, path):
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "recorder",
                  "clusters": [{"name": "recorder", "cluster": {"server": self.url}}],
                  "contexts": [{"name": "recorder", "context": {"cluster": "recorder", "user": "recorder"}}],
                  "users": [{"name": "recorder", "user": {"token": "recorder"}}]}
        path.write_text(json.dumps(config))
        return path

    def stop(self):
        self.closing.set()
        self.shutdown()
        self.server_close()

    def store(self, path, thing):
        with self.lock:
            self.number += 1
            meta = thing.setdefault("metadata", {})
            old = self.objects.get(path)
            meta["uid"] = old["metadata"]["uid"] if old else str(uuid.uuid4())
            meta["resourceVersion"] = str(self.number)
            meta["generation"] = 1
            meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
            found = re.match(r"/apis?/.*/namespaces/([^/]+)/", path)
            if found:
                meta["namespace"] = found[1]
            if thing.get("kind") == "Job":
                done = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                thing["status"] = {"succeeded": 1, "startTime": "2026-01-01T00:00:00Z",
                                   "completionTime": "2026-01-01T00:00:00Z",
                                   "conditions": [{**done, "type": "SuccessCriteriaMet"}, done]}
            self.objects[path] = thing
            self.written.append(thing)
            return thing


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, value, status=200):
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def missing(self, path):
        self.answer({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
                     "message": f"{path} not found", "details": {"name": path.rsplit("/", 1)[-1]}}, 404)

    def body(self):
        length = int(self.headers.get("Content-Length") or 0)
        text = self.rfile.read(length)
        if text.startswith(b"k8s\0") and "/secrets" in self.path and self.command in ("POST", "PUT"):
            return read_secret(text)
        if text.startswith(b"k8s\0"):
            return {}
        # Server-side apply sends YAML, of which JSON is a part.
        return yaml.safe_load(text) if text else {}

    def parts(self):
        found = urllib.parse.urlsplit(self.path)
        return found.path.rstrip("/"), dict(urllib.parse.parse_qsl(found.query))

    def discovery(self, path):
        """Answers about the kinds of the cluster, or `None`."""
        if path == "/version":
            return {"major": VERSION[0], "minor": VERSION[1], "gitVersion": f"v{'.'.join(VERSION)}.0"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            entries = [{"name": name, "versions": [{"groupVersion": version, "version": version.split("/")[1]} for version in versions],
                        "preferredVersion": {"groupVersion": versions[0], "version": versions[0].split("/")[1]}}
                       for name, versions in groups().items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": entries}
        if path == "/openapi/v3":
            versions = sorted({version for version, _, _ in RESOURCES})
            return {"paths": {self.root(version): {"serverRelativeURL": f"/openapi/v3/{self.root(version)}"} for version in versions}}
        if path.startswith("/openapi/v3/"):
            return self.description(path.removeprefix("/openapi/v3/"))
        found = re.fullmatch(r"/api/(v1)|/apis/([^/]+/[^/]+)", path)
        if not found:
            return None
        version = found[1] or found[2]
        kinds = [{"name": plural, "singularName": kind.lower(), "namespaced": plural not in CLUSTER_WIDE, "kind": kind, "verbs": VERBS}
                 for group, kind, plural in RESOURCES if group == version]
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": kinds} if kinds else None

    @staticmethod
    def root(version):
        return f"apis/{version}" if "/" in version else f"api/{version}"

    def description(self, root):
        """Says that the server validates the fields of every kind, so that Helm leaves it to the server."""
        parameters = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string", "uniqueItems": True}}]
        paths = {}
        for version, kind, plural in RESOURCES:
            if self.root(version) == root:
                group, _, number = version.rpartition("/")
                operation = {"parameters": parameters, "responses": {},
                             "x-kubernetes-action": "patch",
                             "x-kubernetes-group-version-kind": {"group": group, "version": number, "kind": kind}}
                paths[f"/{root}/namespaces/{{namespace}}/{plural}/{{name}}"] = {"patch": operation}
        return {"openapi": "3.0.0", "info": {"title": "Recorder", "version": "1"}, "paths": paths} if paths else None

    def selected(self, path, query):
        """Objects of a collection, by the labels and fields that Helm selects with."""
        wanted = [part.split("=", 1) for part in query.get("labelSelector", "").split(",") if "=" in part and "!=" not in part]
        field = dict(part.split("=", 1) for part in query.get("fieldSelector", "").split(",") if "=" in part)
        with self.server.lock:
            things = [thing for place, thing in self.server.objects.items() if place.rsplit("/", 1)[0] == path]
        return [thing for thing in things
                if all(thing["metadata"].get("labels", {}).get(name.rstrip("=")) == value.lstrip("=") for name, value in wanted)
                and field.get("metadata.name", thing["metadata"]["name"]) == thing["metadata"]["name"]]

    def kind_of(self, path):
        plural = path.rsplit("/", 1)[-1]
        return next(((version, kind) for version, kind, name in RESOURCES if name == plural), None)

    def watch(self, path, query):
        """Sends the objects of a collection, and nothing more until the client or the server ends."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

        def send(event):
            line = json.dumps(event).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
        known = {}
        version, kind = self.kind_of(path)
        try:
            first = "sendInitialEvents" in query
            while not self.server.closing.wait(0.05):
                current = {thing["metadata"]["name"]: thing for thing in self.selected(path, query)}
                for name, thing in current.items():
                    if known.get(name) != thing["metadata"]["resourceVersion"]:
                        send({"type": "MODIFIED" if name in known else "ADDED", "object": thing})
                        known[name] = thing["metadata"]["resourceVersion"]
                for name in [name for name in known if name not in current]:
                    send({"type": "DELETED", "object": {"apiVersion": version, "kind": kind, "metadata": {
                        "name": name, "resourceVersion": known.pop(name)}}})
                if first:
                    first = False
                    send({"type": "BOOKMARK", "object": {"apiVersion": version, "kind": kind, "metadata": {
                        "resourceVersion": str(self.server.number), "annotations": {"k8s.io/initial-events-end": "true"}}}})
        except OSError:
            self.close_connection = True

    def do_GET(self):
        path, query = self.parts()
        known = self.discovery(path)
        if known:
            return self.answer(known)
        kind = self.kind_of(path)
        if kind and query.get("watch") in ("1", "true"):
            return self.watch(path, query)
        if kind:
            things = self.selected(path, query)
            return self.answer({"kind": f"{kind[1]}List", "apiVersion": kind[0], "items": things,
                                "metadata": {"resourceVersion": str(self.server.number)}})
        with self.server.lock:
            thing = self.server.objects.get(path)
        return self.answer(thing) if thing else self.missing(path)

    def do_POST(self):
        path, _ = self.parts()
        thing = self.body()
        self.answer(self.server.store(f"{path}/{thing['metadata']['name']}", thing), 201)

    def do_PUT(self):
        path, _ = self.parts()
        self.answer(self.server.store(path, self.body()))

    def do_PATCH(self):
        path, _ = self.parts()
        change = self.body()
        if "apply" not in self.headers.get("Content-Type", ""):
            with self.server.lock:
                change = {**self.server.objects.get(path, {}), **change}
        self.answer(self.server.store(path, change))

    def do_DELETE(self):
        path, _ = self.parts()
        self.body()
        with self.server.lock:
            thing = self.server.objects.pop(path, None)
        return self.answer({"kind": "Status", "apiVersion": "v1", "status": "Success"}) if thing else self.missing(path)
