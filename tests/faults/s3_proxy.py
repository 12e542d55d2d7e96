"""An HTTP proxy in front of an S3 store: it loses answers or requests, refuses as S3 does, or drops a condition.

It passes requests on unchanged, including their Host, which is signed. If it drops a header, it signs the request
again.
"""

import http.client
import threading
from dataclasses import dataclass
from enum import StrEnum
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from sandbox.services.s3 import REGION, Bucket
from tests.faults import counts
from tests.worlds.local_http import LocalHttp

OF_A_CONNECTION = {"expect", "connection"}
OF_AN_ANSWER = {"connection", "transfer-encoding", "content-length"}
SIGNED_AGAIN = {"if-none-match", "if-match", "authorization", "x-amz-date", "x-amz-content-sha256"}
AT_EVERY_TRY = 3  # the client gives up after three tries


class Answer(StrEnum):
    """The answer to a request that a rule matches."""

    LOST = "answer lost"  # the store has done it, the client gets no answer
    CUT_BEFORE = "cut before"  # the store does not get it
    REFUSED = "refused"  # with the rule's status and code
    UNCONDITIONAL = "unconditional"  # done without the condition in its header


@dataclass
class Rule:
    """Matches ``times`` requests (-1: all) of a method whose path contains ``having``, after the first ``skip``.

    ``copy`` says if the request copies an object inside the store; None matches both. ``header`` is a header that it
    has. ``if_match`` is the beginning of the ETag in the condition ``If-Match``; empty matches requests with and
    without one. ``quoted`` says if that ETag has quotes; None matches both, and requests without an ETag.
    """

    answer: Answer
    method: str = ""
    having: str = ""
    copy: bool | None = None
    if_match: str = ""
    quoted: bool | None = None
    times: int = AT_EVERY_TRY
    skip: int = 0
    status: int = 500
    code: str = "InternalError"
    header: str = ""
    struck: int = 0

    def strikes(self, method: str, path: str, headers: Any) -> bool:
        copies = "x-amz-copy-source" in headers
        meant = self.method in ("", method) and self.having in path and self.copy in (None, copies)
        condition = headers.get("If-Match", "")
        meant = meant and condition.strip('"').startswith(self.if_match)
        meant = meant and (self.quoted is None or (condition != "" and condition.startswith('"') == self.quoted))
        if not meant or self.struck == self.times or (self.header and self.header not in headers):
            return False
        if self.skip:
            self.skip -= 1
            return False
        counts.REACHED[counts.HIT] += not self.struck  # all tries of a request count as one
        self.struck += 1
        return True


class ServiceProxy(LocalHttp):
    """Passes requests on to the service at ``service_url``."""

    def __init__(self, service_url: str) -> None:
        self.service = urlsplit(service_url)
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

    def connection(self) -> http.client.HTTPConnection:
        """A new connection to the service."""
        connect = http.client.HTTPSConnection if self.service.scheme == "https" else http.client.HTTPConnection
        return connect(str(self.service.hostname), self.service.port, timeout=60)

    def unconditional(self, method: str, path: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
        """The headers of a request without its condition; as they are, where the service has no conditions in them."""
        del method, path, body
        return headers

    def struck(self, method: str, path: str, headers: Any) -> Rule | None:
        with self._lock:
            self.requests.append(f"{method} {path}")
            return self.rule if self.rule and self.rule.strikes(method, path, headers) else None


class S3Proxy(ServiceProxy):
    """A proxy in front of the store of a bucket."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(bucket.endpoint_url)
        self._bucket = bucket

    def unconditional(self, method: str, path: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
        request = AWSRequest(method, f"{self.endpoint_url}{path}", without(SIGNED_AGAIN, headers), body)
        S3SigV4Auth(Credentials(self._bucket.key_id, self._bucket.secret), "s3", REGION).add_auth(request)
        return dict(request.headers.items())


def without(names: set[str], headers: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in names}


def _handler(proxy: ServiceProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            rule = proxy.struck(self.command, self.path, self.headers)
            answer = rule.answer if rule else None
            if rule is not None and answer is Answer.REFUSED:
                self.refuse(rule)
                self.close_connection = "Content-Length" not in self.headers  # a body may follow that nobody reads
                return
            if answer is not Answer.CUT_BEFORE:
                self.pass_on(body, answer)
            self.close_connection = self.close_connection or answer is not None

        def pass_on(self, body: bytes, answer: Answer | None) -> None:
            headers = without(OF_A_CONNECTION, dict(self.headers.items()))
            if answer is Answer.UNCONDITIONAL:
                headers = proxy.unconditional(self.command, self.path, headers, body)
            store = proxy.connection()
            try:
                store.request(self.command, self.path, body, headers)
                response = store.getresponse()
                content = response.read()
            finally:
                store.close()
            if answer is not Answer.LOST:
                self.say(response.status, dict(response.getheaders()), content)

        def refuse(self, rule: Rule) -> None:
            kind, body = proxy.refusal(rule)
            self.say(rule.status, {"Content-Type": kind, "Content-Length": str(len(body))}, body)

        def say(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response_only(status)
            for name, value in without(OF_AN_ANSWER, headers).items():
                self.send_header(name, value)
            lengths = [value for name, value in headers.items() if name.lower() == "content-length"]
            length = lengths[0] if lengths and self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    return Handler
