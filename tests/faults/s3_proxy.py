"""An HTTP proxy in front of the S3 emulator: it loses answers or requests, refuses as S3 does, or drops a header.

The emulator does not check signatures, so the proxy can pass requests on unchanged.
"""

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.faults import counts
from tests.worlds.local_http import LocalHttp

AT_EVERY_TRY = 3  # the client gives up after three tries


class Answer(StrEnum):
    """What happens to a request that a rule matches."""

    LOST = "answer lost"  # the store has done it, the client gets no answer
    CUT_BEFORE = "cut before"  # the store does not get it
    REFUSED = "refused"  # with the rule's status and code
    UNCONDITIONAL = "unconditional"  # done without the condition in its header


@dataclass
class Rule:
    """Matches ``times`` requests (-1: all) of a method whose path contains ``having``, after the first ``skip``.

    ``copy``: whether the request copies an object inside the store; None: either.
    """

    answer: Answer
    method: str = ""
    having: str = ""
    copy: bool | None = None
    times: int = AT_EVERY_TRY
    skip: int = 0
    status: int = 500
    code: str = "InternalError"
    struck: int = 0

    def strikes(self, method: str, path: str, headers: Any) -> bool:
        copies = "x-amz-copy-source" in headers
        meant = self.method in ("", method) and self.having in path and self.copy in (None, copies)
        if not meant or self.struck == self.times:
            return False
        if self.skip:
            self.skip -= 1
            return False
        counts.REACHED[counts.HIT] += not self.struck  # all tries of a request count as one
        self.struck += 1
        return True


class S3Proxy(LocalHttp):
    """Passes requests on to ``port``."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.rule: Rule | None = None
        self.requests: list[str] = []
        self._lock = threading.Lock()
        super().__init__(_handler(self))

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.own_port}"

    def arm(self, rule: Rule) -> Rule:
        self.rule = rule
        return rule

    def disarm(self) -> None:
        self.rule = None

    def refusal(self, rule: Rule) -> tuple[str, bytes]:
        """The type and the content of a refusal, as the service has them."""
        body = f"<Error><Code>{rule.code}</Code><Message>said by a proxy</Message></Error>"
        return "application/xml", body.encode()

    def struck(self, method: str, path: str, headers: Any) -> Rule | None:
        with self._lock:
            self.requests.append(f"{method} {path}")
            return self.rule if self.rule and self.rule.strikes(method, path, headers) else None


def _handler(proxy: S3Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            rule = proxy.struck(self.command, self.path, self.headers)
            answer = rule.answer if rule else None
            if rule is not None and answer is Answer.REFUSED:
                self.refuse(rule)
                return
            if answer is not Answer.CUT_BEFORE:
                dropped = {"host", "expect", "connection"} | ({"if-none-match"} if answer else set())
                self.pass_on(body, dropped, lambda: answer is Answer.LOST)
            self.close_connection = self.close_connection or answer is not None

        def pass_on(self, body: bytes, dropped: set[str], is_lost: Callable[[], bool]) -> None:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
            store = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=60)
            try:
                store.request(self.command, self.path, body, headers)
                response = store.getresponse()
                content = response.read()
            finally:
                store.close()
            if not is_lost():
                self.say(response.status, dict(response.getheaders()), content)

        def refuse(self, rule: Rule) -> None:
            kind, body = proxy.refusal(rule)
            self.say(rule.status, {"Content-Type": kind, "Content-Length": str(len(body))}, body)

        def say(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                    self.send_header(name, value)
            length = headers.get("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    return Handler
