"""Pipeline files as they were when they were last right, one JSON file per pipeline below ``TIDEMARK_HOME/_pipelines``.

They are not kept beside the files, because that folder is often read-only or a checkout, and not in the database,
because Airflow reads DAG files every few seconds. No value of a variable is kept: the texts still say ``${NAME}``.
"""

import json
import logging
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class KeptFile:
    """``file`` is absolute. ``named``: the texts of the files that it names, such as a schema, by these names."""

    pipeline_name: str
    file: Path
    text: str
    named: Mapping[str, str]


def kept_path(pipeline_name: str, env: Mapping[str, str]) -> Path:
    """Whoever removes this file gives the pipeline up: without its pipeline file it has no DAG any more."""
    return _folder(env) / f"{pipeline_name}.json"


def kept_file(pipeline_name: str, env: Mapping[str, str]) -> KeptFile | None:
    """None when no pipeline file of that name was right before, or when what was kept cannot be read."""
    return _read(kept_path(pipeline_name, env))


def kept_files(pipelines: Path | str, env: Mapping[str, str]) -> list[KeptFile]:
    """The kept files of one folder of pipelines, sorted by pipeline."""
    kept = [_read(path) for path in sorted(_folder(env).glob("*.json"))]
    folder = Path(pipelines).absolute()
    return [file for file in kept if file is not None and file.file.parent == folder]


def keep(file: KeptFile, env: Mapping[str, str]) -> None:
    """Write in one step, unless the same is kept; a folder that cannot be written is told in the log only."""
    path = kept_path(file.pipeline_name, env)
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
            "%s is right and cannot be kept in %s: %s; a mistake in it will take the DAG of pipeline %s away",
            file.file, path, problem.strerror, file.pipeline_name,
        )  # fmt: skip


def _folder(env: Mapping[str, str]) -> Path:
    return Path(env.get("TIDEMARK_HOME") or ".").absolute() / "_pipelines"


def _read(path: Path) -> KeptFile | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return KeptFile(content["pipeline"], Path(content["file"]), content["text"], content["named"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
