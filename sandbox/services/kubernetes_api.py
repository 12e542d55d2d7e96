"""The API of Kubernetes, without a cluster: that of the tests of fabric8's client, in a JVM, behind a server of ours.

The server adds what the API of the tests lacks: rights, server-side apply, and the first state of a pod. Who has no
token has the rights of `examples/kubernetes/rights.yaml`; the node has all. Watches are WebSockets, and pass as they
are.
"""

import json
import re
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import httpx
import yaml
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped]

from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.bootstrap.jars import java, pyspark_jars
from sandbox.services.processes import free_port
from sandbox.services.spark_cluster import QUICK

RIGHTS = CHECKOUT / "examples" / "kubernetes" / "rights.yaml"
FORBIDDEN = "forbidden"  # a namespace where the account may not create pods
OF_NODE = {"Authorization": "Bearer node"}
JSON, MERGE, APPLY = "application/json", "application/merge-patch+json", "application/apply-patch+yaml"
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v\w+/namespaces/(?P<namespace>[^/]+)/(?P<resource>\w+)(?:/(?P<name>[^/]+))?"
)
Rule = tuple[str, str, str]  # group of an API, resource, verb


def rights() -> set[Rule]:
    """Return what `rights.yaml` allows."""
    [role] = [each for each in yaml.safe_load_all(RIGHTS.read_text()) if each["kind"] == "Role"]
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def refusal(method: str, address: str, allowed: set[Rule]) -> str:
    """Return why a request is refused, in the words of Kubernetes; an empty text if it is allowed."""
    url = urlsplit(address)
    match = _PATH.match(url.path)
    if match is None:
        return ""  # versions, and what there is
    group, resource = match["group"] or "", match["resource"]
    reading = "watch" if "watch=true" in url.query else "get" if match["name"] else "list"
    deleting = "delete" if match["name"] else "deletecollection"
    verb = {"GET": reading, "DELETE": deleting, **_VERBS}[method]
    closed = match["namespace"] == FORBIDDEN and (resource, verb) == ("pods", "create")
    if (group, resource, verb) in allowed and not closed:
        return ""
    where = f'in API group "{group}" in the namespace "{match["namespace"]}"'
    return f'{resource} is forbidden: the account cannot {verb} resource "{resource}" {where}'


class Api(ThreadingHTTPServer):
    """The server on a port of 127.0.0.1; the JVM that it asks ends with this process."""

    daemon_threads = True

    def __init__(self, port: int, jars: str) -> None:
        super().__init__(("127.0.0.1", port), _Request)
        self.allowed = rights()
        self.jvm = ("127.0.0.1", free_port())
        self._gateway = _start_jvm(self.jvm[1], jars)
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.jvm[1]}", timeout=30)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Request(BaseHTTPRequestHandler):
    """The requests of one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Api

    def _do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        is_node = self.headers.get("Authorization") == OF_NODE["Authorization"]
        refused = "" if is_node else refusal(self.command, self.path, self.server.allowed)
        if refused:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}
            self._send(403, json.dumps({**status, "message": refused}).encode())
        elif self.headers.get("Upgrade", "").lower() == "websocket":
            self._join()
        elif self.headers.get("Content-Type", "").startswith(APPLY):
            self._apply(yaml.safe_load(body))
        elif self.command == "POST":
            self._answer(self._create(self.path, json.loads(body)))
        else:
            self._answer(self._ask(self.command, self.path, body, self.headers.get("Content-Type", JSON)))

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _do  # noqa: N815 -- names of http.server

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log no request, only errors."""

    def _apply(self, resource: dict[str, Any]) -> None:
        """Create the resource, or change the one that exists."""
        path = urlsplit(self.path).path
        answer = self._create(path.rpartition("/")[0], resource)
        if answer.status_code == 409:
            answer = self._ask("PATCH", path, json.dumps(resource).encode(), MERGE)
        self._answer(answer)

    def _create(self, path: str, resource: dict[str, Any]) -> httpx.Response:
        status = {"status": {"phase": "Pending"}} if resource.get("kind") == "Pod" else {}
        return self._ask("POST", path, json.dumps(resource | status).encode(), JSON)

    def _ask(self, method: str, path: str, body: bytes, content_type: str) -> httpx.Response:
        return self.server.client.request(method, path, content=body, headers={"Content-Type": content_type})

    def _answer(self, answer: httpx.Response) -> None:
        self._send(answer.status_code, answer.content)

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", JSON)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _join(self) -> None:
        """Pass the bytes of a WebSocket both ways, until one side ends it."""
        self.close_connection = True
        with socket.create_connection(self.server.jvm) as jvm:
            lines = [self.requestline, *(f"{name}: {value}" for name, value in self.headers.items()), "", ""]
            jvm.sendall("\r\n".join(lines).encode())
            threading.Thread(target=_copy, args=(self.connection, jvm), daemon=True).start()
            _copy(jvm, self.connection)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while content := source.recv(65536):
            target.sendall(content)
    for side in (source, target):
        with suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)


def _start_jvm(port: int, jars: str) -> JavaGateway:
    path = f"{jars}/*:{pyspark_jars()}/*"
    classes = launch_gateway(classpath=path, javaopts=[*QUICK, "-Xmx256m"], die_on_exit=True, java_path=java())
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=classes))
    web = gateway.jvm.io.fabric8.mockwebserver
    mock = gateway.jvm.io.fabric8.kubernetes.client.server.mock
    answers = gateway.jvm.java.util.HashMap()
    parts = (web.Context(), web.MockWebServer(), answers, mock.KubernetesMixedDispatcher(answers))
    server = mock.KubernetesMockServer(*parts, False)
    server.init(gateway.jvm.java.net.InetAddress.getByName("127.0.0.1"), port)
    return gateway
