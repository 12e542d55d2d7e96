"""A proxy in front of a REST catalog. It answers a commit with a time-out, before or after the catalog has done it, or
refuses a login, a token or a right."""

import http.client
import json
from enum import StrEnum
from http.server import BaseHTTPRequestHandler

from tests.worlds.local_http import LocalHttp


class Late(StrEnum):
    """Says if a commit was done whose answer is a time-out."""

    DONE = "done"
    LOST = "lost"


class Refuses(StrEnum):
    """Refusals of the proxy, as the specification of REST catalogs defines them."""

    LOGIN = "login"
    TOKEN = "token"
    RIGHT = "right"


_REFUSALS = {
    Refuses.LOGIN: (401, {"error": "invalid_client", "error_description": "Credentials given were invalid"}),
    Refuses.TOKEN: (401, {"error": {"message": "Not authorized", "type": "NotAuthorizedException", "code": 401}}),
    Refuses.RIGHT: (403, {"error": {"message": "Not authorized", "type": "ForbiddenException", "code": 403}}),
}


class RestProxy(LocalHttp):
    """A proxy. ``late`` applies only to the next commit of a table; ``struck`` counts these."""

    def __init__(self, port: int) -> None:
        self.late: Late | None = None
        self.refuses: Refuses | None = None
        self.struck = 0
        super().__init__(_handler(self, port))


def _handler(proxy: RestProxy, port: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            late = proxy.late if self.command == "POST" and b"add-snapshot" in body else None
            if late is not None:
                proxy.late = None
                proxy.struck += 1
            asks_for_token = self.path.endswith("/oauth/tokens")
            if proxy.refuses is not None and asks_for_token == (proxy.refuses is Refuses.LOGIN):
                status, refusal = _REFUSALS[proxy.refuses]
                answer = json.dumps(refusal).encode()
            elif late is not Late.LOST:
                status, answer = self._answer(body)
            if late is not None:
                status, answer = 504, b""
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer)

        def _answer(self, body: bytes) -> tuple[int, bytes]:
            upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "accept-encoding"}
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            try:
                return answer.status, answer.read()
            finally:
                upstream.close()

        def do_GET(self) -> None:
            self._pass_on()

        def do_HEAD(self) -> None:
            self._pass_on()

        def do_POST(self) -> None:
            self._pass_on()

        def log_message(self, format: str, *words: object) -> None:  # noqa: A002
            pass

    return Handler
