"""An HTTP proxy before the S3 emulator: it loses answers, cuts questions, refuses as S3 would, or drops a header.

The emulator checks no signatures, so requests may be handed on as they are.
"""

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.faults import counts

AT_EVERY_TRY = 3  # a request is tried three times before its client gives up


class Answer(StrEnum):
    """What happens to a request that a rule is about."""

    LOST = "answer lost"  # the store has done it, the client never hears of it
    CUT_BEFORE = "cut before"  # the store never hears of it
    REFUSED = "refused"  # with the status and the code of the rule
    UNCONDITIONAL = "unconditional"  # done without the condition that stood in its header


@dataclass
class Rule:
    """The first ``times`` requests of a method whose path has ``having``, after ``skip`` others; -1: all of them.

    ``copy`` says whether the request copies inside the store; None: either.
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
        counts.REACHED[counts.HIT] += not self.struck  # the tries of one request are one
        self.struck += 1
        return True


class S3Proxy:
    """Listens on a free port of 127.0.0.1 and hands on to ``port``; use it with ``with``."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.rule: Rule | None = None
        self.requests: list[str] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def arm(self, rule: Rule) -> Rule:
        self.rule = rule
        return rule

    def disarm(self) -> None:
        self.rule = None

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
                self.hand_on(body, dropped, lambda: answer is Answer.LOST)
            self.close_connection = self.close_connection or answer is not None

        def hand_on(self, body: bytes, dropped: set[str], is_lost: Callable[[], bool]) -> None:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
            store = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=60)
            try:
                store.request(self.command, self.path, body, headers)
                found = store.getresponse()
                content = found.read()
            finally:
                store.close()
            if not is_lost():
                self.say(found.status, dict(found.getheaders()), content)

        def refuse(self, rule: Rule) -> None:
            said = f"<Error><Code>{rule.code}</Code><Message>said by a proxy</Message></Error>".encode()
            self.say(rule.status, {"Content-Type": "application/xml", "Content-Length": str(len(said))}, said)

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
            """Nothing: pytest shows what matters."""

    return Handler
