"""The server of moto as the S3 server of docker-compose.yaml: it answers /health, and keeps its buckets in a folder."""

import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import moto_server
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import S3Backend, s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple


def serve(folder: Path, host: str, port: int) -> None:
    """Answer until SIGTERM; then store the buckets."""
    kept, backend = folder / "buckets.pickle", s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    if kept.exists():
        backend.buckets.update(pickle.loads(kept.read_bytes()))
    application = DomainDispatcherApplication(create_backend_app)

    def answer(request: dict[str, Any], begin: Callable[..., Any]) -> Iterable[bytes]:
        if request["PATH_INFO"] == "/health":
            begin("200 OK", [])
            return [b"ok"]
        return application(request, begin)

    def end(number: int, frame: FrameType | None) -> None:
        kept.write_bytes(pickle.dumps(dict(backend.buckets)))
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    run_simple(host, port, answer, threaded=True)


if __name__ == "__main__":
    S3Backend.complete_multipart_upload = moto_server.complete
    S3Backend.upload_part = moto_server.upload_part
    given = [os.environ[name] for name in ("RUSTFS_ACCESS_KEY", "RUSTFS_SECRET_KEY")]
    assert all(given), "a store without keys would be open"
    host, _, port = os.environ["RUSTFS_ADDRESS"].rpartition(":")
    serve(Path(sys.argv[1]), host or "0.0.0.0", int(port))
