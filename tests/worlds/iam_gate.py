"""MSK's door in front of a real broker: clients log in with TLS and keys of IAM, then the broker answers them.

AWS's own check runs only at AWS. This one computes the signature of a login again by AWS's rules (Signature Version 4),
from the secret of the key that the login names. ``logins`` has each login that was right.
"""

import base64
import hashlib
import hmac
import json
import socketserver
import ssl
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from socket import create_connection, socket
from threading import Lock, Thread
from typing import Any, BinaryIO
from urllib.parse import parse_qsl, quote, urlsplit

from sandbox.services.authority import Identity

API_VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36
FAILED = 58  # Kafka's code SASL_AUTHENTICATION_FAILED
SIGNED = ("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-Security-Token",
          "X-Amz-SignedHeaders")  # fmt: skip


@dataclass(frozen=True)
class Login:
    """A login that was right: who signed it, for which region, and until when its signature is good."""

    mechanism: str
    key_id: str
    region: str
    expires: datetime


class Wrong(Exception):
    """The reason why a login is refused."""


class IamGate(socketserver.ThreadingTCPServer):
    """A port of this machine. ``secrets``: the secret of each key; ``region``: that of the cluster.

    Logins by a mechanism of ``refused`` are refused, as those of an identity without rights.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int, upstream: int, own: Identity, secrets: Mapping[str, str], region: str) -> None:
        self.upstream, self.secrets, self.region = upstream, dict(secrets), region
        self.logins: list[Login] = []
        self.refused: set[str] = set()
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(own.certificate_file, own.key_file)
        super().__init__(("127.0.0.1", port), _Connection)
        Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def check(self, mechanism: str, login: bytes) -> None:
        query = _of_token(login) if mechanism == "OAUTHBEARER" else _of_payload(login)
        key_id, _, region, service, _ = query["X-Amz-Credential"].split("/")
        made = datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        expires = datetime.fromtimestamp(made.timestamp() + int(query["X-Amz-Expires"]), UTC)
        if key_id not in self.secrets or service != "kafka-cluster" or query["Action"] != "kafka-cluster:Connect":
            raise Wrong(f"unknown key {key_id}, service {service} or action {query['Action']}")
        if mechanism in self.refused:
            raise Wrong("Access denied")
        if region != self.region or expires < datetime.now(UTC):
            raise Wrong(f"Access denied: signed for {region}, until {expires}")
        if _signature(query, self.secrets[key_id]) != query["X-Amz-Signature"]:
            raise Wrong("Access denied: the signature is wrong")
        self.logins.append(Login(mechanism, key_id, region, expires))


class _Connection(socketserver.BaseRequestHandler):
    server: IamGate

    def handle(self) -> None:
        with suppress(OSError), self.server.tls.wrap_socket(self.request, server_side=True) as client:
            self.client, self.writing = client, Lock()
            self.mechanism, self.is_known = "", False
            with create_connection(("127.0.0.1", self.server.upstream)) as broker, broker.makefile("rb") as answers:
                Thread(target=self._return, args=(answers,), daemon=True).start()
                with client.makefile("rb") as requests:
                    while (request := _frame(requests)) is not None and self._take(request, broker):
                        pass

    def _return(self, answers: BinaryIO) -> None:
        with suppress(OSError, ValueError):
            while (answer := _frame(answers)) is not None:
                self._send(answer)

    def _send(self, body: bytes) -> None:
        with self.writing:
            self.client.sendall(struct.pack(">i", len(body)) + body)

    def _take(self, request: bytes, broker: socket) -> bool:
        """Answer a request of a login, pass on any other; false if the connection ends."""
        kind, version, number, length = struct.unpack(">hhih", request[:10])
        body = request[10 + max(length, 0) :]
        if kind == HANDSHAKE:
            self.mechanism = body[2:].decode()
            self._send(struct.pack(">ihi", number, 0, 1) + body)
            return True
        if kind == AUTHENTICATE:
            return self._authenticate(version, number, body)
        if kind == API_VERSIONS or self.is_known:
            broker.sendall(struct.pack(">i", len(request)) + request)
            return True
        return False

    def _authenticate(self, version: int, number: int, body: bytes) -> bool:
        login = body[4:] if version < 2 else _compact(body[1:])
        code, message, answer = 0, b"", b""
        try:
            self.server.check(self.mechanism, login)
            self.is_known = True
            if self.mechanism != "OAUTHBEARER":
                answer = json.dumps({"version": "2020_10_22", "request-id": "gate"}).encode()
        except Wrong as wrong:
            code, message = FAILED, str(wrong).encode()
        lifetime = struct.pack(">q", 0) if version else b""  # of the session: without end
        if version < 2:
            texts = struct.pack(">h", len(message)) + message + struct.pack(">i", len(answer)) + answer
            self._send(struct.pack(">ih", number, code) + texts + lifetime)
        else:
            texts = bytes([len(message) + 1]) + message + bytes([len(answer) + 1]) + answer
            self._send(struct.pack(">ixh", number, code) + texts + lifetime + b"\0")
        return code == 0


def _frame(file: BinaryIO) -> bytes | None:
    head = file.read(4)
    return file.read(struct.unpack(">i", head)[0]) if len(head) == 4 else None


def _compact(body: bytes) -> bytes:
    """The bytes behind their length + 1 as a varint, in a flexible request."""
    length, shift = 0, 0
    for at, byte in enumerate(body):
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return body[at + 1 : at + length]
    raise ValueError("the varint has no end")


def _of_token(login: bytes) -> dict[str, str]:
    token = login.split(b"\x01")[1].removeprefix(b"auth=Bearer ")
    parts = urlsplit(base64.urlsafe_b64decode(token + b"==").decode())
    return {**dict(parse_qsl(parts.query)), "host": parts.netloc}


def _of_payload(login: bytes) -> dict[str, str]:
    """The query that the values of a login of AWS's Java library were signed as."""
    raw: dict[str, Any] = json.loads(login)
    names = {name.lower(): name for name in (*SIGNED, "X-Amz-Signature")}
    return {**{names[key]: raw[key] for key in raw.keys() & names}, "Action": raw["action"], "host": raw["host"]}


def _signature(query: Mapping[str, str], secret: str) -> str:
    signed = {name: value for name, value in query.items() if name in (*SIGNED, "Action")}
    text = "&".join(f"{name}={quote(signed[name], safe='')}" for name in sorted(signed))
    canonical = f"GET\n/\n{text}\nhost:{query['host']}\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
    _, *scope = query["X-Amz-Credential"].split("/")
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    to_sign = "\n".join(["AWS4-HMAC-SHA256", query["X-Amz-Date"], "/".join(scope), digest])
    key = f"AWS4{secret}".encode()
    for word in scope:
        key = hmac.digest(key, word.encode(), "sha256")
    return hmac.digest(key, to_sign.encode(), "sha256").hex()
