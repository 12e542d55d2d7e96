"""Copies of pipeline files from when they were last valid, one JSON file per pipeline below
``TIDEMARK_HOME/_pipelines``.

The copy has the name of the pipeline. If another folder of pipelines has that name already, the name also has a hash of
its own folder. So no copy is replaced, even while a folder is missing.

Copies are not kept beside the files, because that folder is often read-only or a checkout. They are not in the
database, because Airflow reads DAG files every few seconds. No value of a variable is kept: the texts still say
``${NAME}``.
"""

import json
import logging
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class KeptFile:
    """A kept copy. ``file`` is absolute. ``named`` has the texts of the files that it names, such as a schema, by these
    names.

    ``since`` is the time at which this text was first kept; None before that.
    """

    pipeline_name: str
    file: Path
    text: str
    named: Mapping[str, str]
    since: datetime | None = field(default=None, compare=False)


def kept_path(pipeline_name: str, pipelines: Path | str, env: Mapping[str, str]) -> Path:
    """Return the path of a pipeline's copy. To remove this file gives the pipeline up: without a pipeline file it then
    has no DAG.
    """
    folder = Path(pipelines).absolute()
    plain = _folder(env) / f"{pipeline_name}.json"
    own = plain.with_suffix(f".{sha256(str(folder).encode()).hexdigest()[:12]}.json")
    if own.exists():
        return own
    kept = _read(plain)
    return plain if kept is None or kept.file.parent == folder else own


def kept_paths(pipeline_name: str, pipelines: Path | str, env: Mapping[str, str]) -> list[Path]:
    """Return the copies of a pipeline of one folder, by whichever path the folder was read. Includes copies that name a
    folder that is not on this machine, or that cannot be read: they may belong to it.
    """
    folder, paths = Path(pipelines).resolve(), []
    for path in sorted(_folder(env).glob("*.json")):
        if _name(path) == pipeline_name:
            kept = _read(path)
            if kept is None or not kept.file.parent.is_dir() or kept.file.parent.resolve() == folder:
                paths.append(path)
    return paths


def kept_file(pipeline_name: str, pipelines: Path | str, env: Mapping[str, str]) -> KeptFile | None:
    """Return the copy of a pipeline of this folder; None if no valid file there ever had it, or if the copy cannot be
    read.
    """
    kept = _read(kept_path(pipeline_name, pipelines, env))
    return kept if kept and kept.file.parent == Path(pipelines).absolute() else None


def kept_files(pipelines: Path | str, env: Mapping[str, str]) -> list[KeptFile]:
    """Return the copies of one folder of pipelines, ordered by pipeline."""
    names = sorted({_name(path) for path in _folder(env).glob("*.json")})
    return [kept for name in names if (kept := kept_file(name, pipelines, env))]


def keep(file: KeptFile, env: Mapping[str, str]) -> None:
    """Write a copy in one step, unless it is unchanged. If the folder cannot be written, only the log says so."""
    path = kept_path(file.pipeline_name, file.file.parent, env)
    if _read(path) == file:
        return
    content = {"pipeline": file.pipeline_name, "file": str(file.file), "text": file.text, "named": dict(file.named)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as partial:
            json.dump(content, partial)
        Path(part).chmod(0o644)
        Path(part).replace(path)
    except OSError as problem:
        LOG.warning(
            "%s is valid and cannot be kept in %s: %s; a mistake in it will remove the DAG of pipeline %s",
            file.file, path, problem.strerror, file.pipeline_name,
        )  # fmt: skip


def _folder(env: Mapping[str, str]) -> Path:
    return Path(env.get("TIDEMARK_HOME") or ".").absolute() / "_pipelines"


def _name(path: Path) -> str:
    """Return the pipeline of a copy: no name of a pipeline has a dot."""
    return path.name.partition(".")[0]


def _read(path: Path) -> KeptFile | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        since = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        return KeptFile(content["pipeline"], Path(content["file"]), content["text"], content["named"], since)
    except (OSError, ValueError, LookupError, TypeError):
        return None
