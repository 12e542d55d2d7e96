"""A token endpoint on this machine: it returns a signed token for the client's id and secret."""

import base64
import json
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from sandbox.services.secured_broker import ISSUER
from tests.worlds.local_http import LocalHttp

KEY_ID = "only"
LIFETIME_S = 600


class TokenEndpoint(LocalHttp):
    """The endpoint. ``jwks`` is the file with the key that verifies its tokens."""

    def __init__(self, folder: Path, client: str, secret: str) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._wanted = "Basic " + base64.b64encode(f"{client}:{secret}".encode()).decode()
        self._client = client
        self.asked = 0
        self.jwks = folder / "jwks.json"
        numbers = self._key.public_key().public_numbers()
        public = {"n": _text(numbers.n.to_bytes(256, "big")), "e": _text(numbers.e.to_bytes(3, "big"))}
        self.jwks.write_text(
            json.dumps({"keys": [{"kty": "RSA", "kid": KEY_ID, "alg": "RS256", "use": "sig", **public}]})
        )
        super().__init__(self._handler())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.own_port}/token"

    def token(self) -> str:
        now = int(time.time())
        claims = {"iss": ISSUER, "sub": self._client, "aud": "kafka", "iat": now, "exp": now + LIFETIME_S}
        parts = [{"alg": "RS256", "typ": "JWT", "kid": KEY_ID}, claims]
        signed = ".".join(_text(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{_text(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                endpoint.asked += 1
                if self.headers.get("Authorization") == endpoint._wanted:
                    self._answer(
                        200, {"access_token": endpoint.token(), "token_type": "Bearer", "expires_in": LIFETIME_S}
                    )
                else:
                    self._answer(401, {"error": "invalid_client"})

            def _answer(self, status: int, body: dict[str, Any]) -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *words: object) -> None:
                """Print nothing."""

        return Handler


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
