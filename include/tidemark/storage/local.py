"""A lake root in a local folder: objects are files, keys their paths.

``put_if_absent`` never replaces a file, and ``move`` may be repeated. Every ``OSError`` becomes an error of ours with
the path and the next step. Only ``create`` and ``open`` raise it unchanged, because their callers know the rows.
"""

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from tidemark.errors import THEN_RETRY, AccessDenied, TidemarkError, Unavailable, WorkFailed
from tidemark.storage.base import Move

LOCK_S = 10.0
BUSY_S = 10.0  # retry for so long if other processes change a folder between two calls of ours
SYNC_THREADS = 8  # an fsync waits for the disk and needs no core


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise disk_error(error, path) from error


def disk_error(error: OSError, path: Path | None = None) -> TidemarkError:
    """Return our error for an error of the file system; ``path`` is used if the error names none."""
    what = ": ".join(str(part) for part in (error.strerror or error, error.filename or path) if part)
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return Unavailable(
                f"the disk is full ({what})",
                next_step="free some space, then run: tidemark retry {pipeline}; nothing is published half",
            )
        case errno.EACCES | errno.EPERM | errno.EROFS:
            mend = (
                "mount the disk so that it can be written" if error.errno == errno.EROFS else "give this user the right"
            )
            return AccessDenied(
                f"the lake cannot be written ({what})",
                next_step=f"{mend}, or give the sink another folder" + THEN_RETRY,
            )
        case _:
            return WorkFailed(f"the lake failed ({what})", next_step="look at the file system" + THEN_RETRY)


class LocalStore:
    """A store in a local folder; ``move`` is a rename, ``sync`` makes files and folders durable."""

    at_once = 1  # creating a file takes only 30 us
    uploads_from = inf  # never: a rename copies nothing

    def __init__(self, root: str) -> None:
        self.root = root
        self._root = Path(root)

    def check(self, *, replaces: bool = False) -> None:
        """Do nothing: on every local file system, creating a link fails if the name exists."""

    def around(self) -> Iterator["LocalStore"]:
        """Return the stores of the parent folders, with links resolved."""
        return (LocalStore(str(folder)) for folder in self._root.resolve().parents)

    def _path(self, key: str) -> Path:
        path = self._root / key
        if Path(key).is_absolute() or ".." in Path(key).parts:
            raise WorkFailed(f"the key {key} leaves the lake root {self.root}", next_step="this is a defect; report it")
        return path

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Create the object completely and durably, or return False if the key exists."""
        path = self._path(key)
        with _translated(path):
            temporary = self._write_beside(path, content)
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
            finally:
                temporary.unlink()
            self._sync_folders([path])
        return True

    def put(self, key: str, content: bytes) -> None:
        """Write the object completely and durably; an existing object is replaced."""
        path = self._path(key)
        with _translated(path):
            self._write_beside(path, content).replace(path)
            self._sync_folders([path])

    def replace(self, key: str, before: bytes | None, content: bytes) -> bool:
        """Put the object completely and durably, or return False if its content is not ``before``.

        A lock on the root covers comparison and rename, on this machine and on file systems that share locks. The lock
        ends with its process. Raises ``Unavailable`` if a paused process holds it for longer than 10 s.
        """
        path = self._path(key)
        with _translated(path):
            temporary = self._write_beside(path, content)
            try:
                with self._locked():
                    if self.get(key) != before:
                        return False
                    path.parent.mkdir(parents=True, exist_ok=True)
                    temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
            self._sync_folders([path])
        return True

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._root, os.O_RDONLY)
        try:
            for last in _tries(LOCK_S):
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if last:
                        raise Unavailable(
                            f"another process has locked {self._root} for more than {LOCK_S:.0f} s",
                            next_step="look for a paused process of Tidemark, then repeat the command",
                        ) from None
            yield
        finally:
            os.close(descriptor)

    def _write_beside(self, path: Path, content: bytes) -> Path:
        self._make_root()
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{uuid4().hex}")
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return temporary

    def _make_root(self) -> None:
        """Create the root and its missing parents, and make them durable. ``_sync_folders`` stops at the root."""
        missing = [folder for folder in (self._root, *self._root.parents) if not folder.exists()]
        self._root.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            _sync_path(folder.parent)

    def _sync_folders(self, paths: Iterable[Path]) -> None:
        """Make the names of objects durable, and of all folders above them, which another process may have made."""
        folders = {parent for path in paths for parent in path.parents if parent.is_relative_to(self._root)}
        with ThreadPoolExecutor(SYNC_THREADS) as pool:
            list(pool.map(_sync_path, folders))

    def get(self, key: str) -> bytes | None:
        path = self._path(key)
        with _translated(path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def size(self, key: str) -> int | None:
        path = self._path(key)
        with _translated(path):
            try:
                return path.stat().st_size
            except FileNotFoundError:
                return None

    @contextmanager
    def create(self, key: str, final: str | None = None) -> Iterator[BinaryIO]:
        """Yield a file to write and read back. It gets its name when the block ends, and is not durable yet; after an
        error it is removed."""
        del final
        path = self._path(key)
        partial = path.with_name(f".{path.name}")
        try:
            with _opened(partial) as file:
                yield file
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise

    def open(self, key: str) -> BinaryIO:
        """Open the object for reading; raises ``FileNotFoundError`` if it does not exist."""
        return self._path(key).open("rb")

    def has(self, sizes: Mapping[str, int]) -> bool:
        """Return whether each key has an object of the given size in bytes."""
        return all(self.size(key) == size for key, size in sizes.items())

    def move_each(self, moves: Iterable[Move], before: Callable[[], None], after: Callable[[], None]) -> None:
        """Move one object after the other."""
        for move in moves:
            before()
            self.move(move.staged, move.key, move.size)
            after()

    def move(self, staged: str, key: str, size: int) -> None:
        """Move a staged object to its key. May be repeated: it is done if nothing is staged and the key has ``size``
        bytes."""
        source, target = self._path(staged), self._path(key)
        with _translated(source):
            for last in _tries(BUSY_S):
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    source.rename(target)
                except FileNotFoundError:
                    if self.size(key) == size:
                        return
                    if source.exists() and not last:
                        continue  # another process pruned the empty folder between our two calls
                    raise
                return

    def sync(self, keys: Iterable[str]) -> None:
        paths = [self._path(key) for key in keys]
        with _translated(self._root):
            with ThreadPoolExecutor(SYNC_THREADS) as pool:
                list(pool.map(_sync_path, paths))
            self._sync_folders(paths)

    def stop_uploads(self, folder: str) -> None:
        """Do nothing: this store has no uploads."""

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, and folders that became empty; a missing object is not an error."""
        for key in keys:
            path = self._path(key)
            with _translated(path):
                path.unlink(missing_ok=True)
                self._prune(path.parent)

    def _prune(self, folder: Path) -> None:
        while folder != self._root and folder.is_relative_to(self._root):
            try:
                folder.rmdir()
            except OSError:  # not empty, or already removed
                return
            folder = folder.parent

    def delete_folder(self, key: str) -> None:
        folder = self._path(key)
        with _translated(folder):
            for last in _tries(BUSY_S):
                if not folder.exists():
                    break
                try:
                    shutil.rmtree(folder)
                except OSError as busy:  # another process removes it too, or a paused task still writes to it
                    if busy.errno not in (errno.ENOENT, errno.ENOTEMPTY) or last:
                        raise
            self._prune(folder.parent)

    def folders(self, prefix: str) -> list[str]:
        """Return the names of the folders directly in a folder, sorted; none if the folder does not exist."""
        path = self._path(prefix)
        with _translated(path):
            return sorted(entry.name for entry in path.iterdir() if entry.is_dir()) if path.is_dir() else []

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield (key, bytes) of every object below a folder, in no order; none if the folder does not exist."""
        for folder, _, names in os.walk(self._path(prefix), onerror=_refuse_unreadable):
            for name in names:
                path = Path(folder, name)
                try:
                    yield path.relative_to(self._root).as_posix(), path.stat().st_size
                except FileNotFoundError:
                    continue

    def names(self, folder: str, *, beginning: str = "", after: str = "") -> Iterator[str]:
        """Yield the keys of files and folders directly in a folder, in no order; none if the folder does not exist."""
        try:
            entries = os.scandir(self._path(folder))
        except OSError as error:
            _refuse_unreadable(error)
            return
        with entries:
            for entry in entries:
                if entry.name.startswith(beginning) and entry.name > after:
                    yield f"{folder}/{entry.name}"


def _opened(path: Path) -> BinaryIO:
    for last in _tries(BUSY_S):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return path.open("w+b")
        except FileNotFoundError:  # another task pruned the empty folder between our two calls
            if last:
                raise
    raise AssertionError("unreachable")


def _tries(seconds: float) -> Iterator[bool]:
    """Yield False for each try, with pauses in between, until the time is over; then True for the last try."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield False
        time.sleep(0.01)
    yield True


def _refuse_unreadable(error: OSError) -> None:
    """Raise unless the folder is missing: a folder that cannot be read must not look empty."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise disk_error(error, Path(error.filename)) from error


def _sync_path(path: Path) -> None:
    """Sync a file or a folder, which work the same way."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
