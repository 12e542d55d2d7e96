"""The package as a zip that the driver sends to executors, so that a cluster needs no installation of Tidemark.

The zip also has the installed packages that bring kinds, with their metadata, by which executors find them. A library
that such a package needs must be installed on the executors.

The same files always give the same bytes, and the name has their hash. So two processes may write the zip at the same
time, and a new version never replaces a zip that a running application still uses.
"""

import os
import tempfile
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.metadata import Distribution
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from tidemark.kinds import ENTRY_POINTS, PROVIDERS
from tidemark.version import PACKAGE, VERSION

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first date a zip can hold


@cache
def package_zip(home: Path) -> Path:
    """Return the zip below ``home/_packages``, or in a temporary folder if ``home`` cannot be written. Write it if it
    is missing.

    It has data files (SQL, JSON) too. Zips of older versions stay: a running application may still need them.
    """
    content = _zipped()
    name = f"tidemark-{VERSION}-{_hash(content)}.zip"
    try:
        return _written(home.absolute() / "_packages" / name, content)
    except OSError:
        return _written(Path(tempfile.mkdtemp(prefix="tidemark-packages-"), name), content)


@cache
def package_hash() -> str:
    """Return the hash of all files of the package, which differs for each version of the code."""
    return _hash(_zipped())


def _hash(content: bytes) -> str:
    return sha256(content).hexdigest()[:16]


def _zipped() -> bytes:
    files = dict(_files_below(PACKAGE))
    for distribution in PROVIDERS.distributions.values():
        files.update(_files_of(distribution))
    buffer = BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = ZipInfo(name, _EPOCH)
            entry.compress_type, entry.external_attr = ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, files[name].read_bytes())
    return buffer.getvalue()


def _files_below(package: Path) -> Iterator[tuple[str, Path]]:
    """Yield, for each file of a package, its name in the zip and its path."""
    for path in package.rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            yield path.relative_to(package.parent).as_posix(), path


def _files_of(distribution: Distribution) -> Iterator[tuple[str, Path]]:
    """Yield the same for the packages that have the entry points of a distribution, and for its metadata."""
    for entry in distribution.entry_points.select(group=ENTRY_POINTS):
        spec = find_spec(entry.module.partition(".")[0])
        for place in (spec and spec.submodule_search_locations) or ():
            yield from _files_below(Path(place))
    for file in distribution.files or ():
        if file.parent.name.endswith(".dist-info") and file.name in ("METADATA", "entry_points.txt"):
            yield file.as_posix(), Path(str(file.locate()))


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
