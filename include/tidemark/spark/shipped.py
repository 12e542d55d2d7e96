"""The package as a zip that the driver sends to executors, so that a cluster needs no installation of Tidemark.

The same files always give the same bytes, and the name holds their hash. So two processes may write the zip at the same
time, and a new version never replaces a zip that a running application still uses.
"""

import os
import tempfile
from functools import cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from tidemark.version import PACKAGE, VERSION

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first date a zip can hold


def is_local(master: str) -> bool:
    """Whether tasks run in the driver's own JVM, with its files; false for ``local-cluster``."""
    return master == "local" or master.startswith("local[")


@cache
def package_zip(home: Path) -> Path:
    """The zip below ``home/_packages``, or in a temporary folder when ``home`` cannot be written. Written when missing.

    It holds data files (SQL, JSON), too. Zips of older versions stay: a running application may still need them.
    """
    content = _zipped(PACKAGE)
    name = f"tidemark-{VERSION}-{_hash(content)}.zip"
    try:
        return _written(home.absolute() / "_packages" / name, content)
    except OSError:
        return _written(Path(tempfile.mkdtemp(prefix="tidemark-packages-"), name), content)


@cache
def package_hash() -> str:
    """Of all files of the package: another one for each version of the code."""
    return _hash(_zipped(PACKAGE))


def _hash(content: bytes) -> str:
    return sha256(content).hexdigest()[:16]


def _zipped(package: Path) -> bytes:
    buffer = BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
        for path in sorted(package.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                entry = ZipInfo(path.relative_to(package.parent).as_posix(), _EPOCH)
                entry.compress_type, entry.external_attr = ZIP_DEFLATED, 0o644 << 16
                archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()


def _written(path: Path, content: bytes) -> Path:
    """Write ``path`` in one step, unless it exists: other processes see the whole file or none."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(part).chmod(0o644)
        Path(part).replace(path)
    return path
