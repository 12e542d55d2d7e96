"""A proxy in front of the real schema registry that demands a password, a token or a certificate.

Apicurio's own checks need an identity provider. It also lacks Confluent's GUIDs, so the proxy gives each schema a GUID
made from its id. ``requests`` are the requested paths.
"""

import json
import ssl
import urllib.request
from base64 import b64encode
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.error import HTTPError
from uuid import UUID

from sandbox.services.authority import Authority, Identity
from sandbox.services.registry import SchemaRegistry
from tests.worlds.local_http import LocalHttp

_GUIDS = 0xA11C << 112


def guid_of(number: int) -> str:
    return str(UUID(int=_GUIDS | number))


def basic(user: str, password: str) -> str:
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


class RegistryProxy(LocalHttp):
    """A proxy. ``authorization`` is the header that it demands. With an ``authority`` it speaks TLS, and if ``mutual``
    it demands a client certificate.

    Paths that contain ``down`` get 503.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        authorization: str | None = None,
        authority: Authority | None = None,
        *,
        mutual: bool = False,
    ) -> None:
        self._upstream = registry.url
        self._wanted = authorization
        self.requests: list[str] = []
        self.down = ""
        super().__init__(self._handler())
        self._scheme = "http"
        if authority is not None:
            self._scheme = "https"
            own: Identity = authority.issue("registry", "localhost")
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(own.certificate_file, own.key_file)
            if mutual:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(authority.certificate_file)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )

    @property
    def url(self) -> str:
        return f"{self._scheme}://localhost:{self.own_port}"

    def _answer(self, method: str, path: str, body: bytes | None) -> tuple[int, Any]:
        path = path.partition("?")[0].lstrip("/")
        if path.startswith("schemas/guids/"):
            number = UUID(path.removeprefix("schemas/guids/")).int
            if number >> 112 != _GUIDS >> 112:
                return 404, {"error_code": 40403, "message": "no such GUID"}
            path = f"schemas/ids/{number & (2**112 - 1)}"
        request = urllib.request.Request(f"{self._upstream}/{path}", body, method=method)
        request.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                content = json.load(answer)
        except HTTPError as error:
            with error:
                return error.code, json.load(error)
        if path.startswith("schemas/ids/"):
            content["id"] = int(path.split("/")[2])
        if isinstance(content, dict) and "id" in content:
            content["guid"] = guid_of(content["id"])
        return 200, content

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
                proxy.requests.append(self.path)
                if proxy.down and proxy.down in self.path:
                    status, content = 503, {"message": "down"}
                elif proxy._wanted is not None and self.headers.get("Authorization") != proxy._wanted:
                    status, content = 401, {"error_code": 401, "message": "who are you?"}
                else:
                    status, content = proxy._answer(self.command, self.path, body)
                text = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_GET(self) -> None:
                self._serve()

            def do_POST(self) -> None:
                self._serve()

            def log_message(self, *_: Any) -> None:
                """Not into the output of tests."""

            def handle(self) -> None:
                try:
                    super().handle()
                except (ssl.SSLError, ConnectionError):  # a client without a certificate, or that went away
                    return

        return Handler
