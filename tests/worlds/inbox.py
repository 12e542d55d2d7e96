"""A webhook that keeps the messages that it gets."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.worlds.local_http import LocalHttp

PATH = "/hook/very-secret"


class Inbox:
    """A webhook. ``got`` are its messages, oldest first; ``status`` is the status code of its answers."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.status = 200
        self.address = ""

    def handler(self) -> type[BaseHTTPRequestHandler]:
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == PATH
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if inbox.status == 200:
                    inbox.got.append(body)
                self.send_response(inbox.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def texts(self) -> list[str]:
        """What it got since the last call."""
        texts = [message["text"] for message in self.got]
        self.got.clear()
        return texts


@contextmanager
def open_inbox() -> Iterator[Inbox]:
    inbox = Inbox()
    with LocalHttp(inbox.handler()) as server:
        inbox.address = f"http://127.0.0.1:{server.own_port}{PATH}"
        yield inbox
