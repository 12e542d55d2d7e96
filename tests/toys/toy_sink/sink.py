"""Publishing JSON files: readers take the file of the highest attempt that left a record.

owner.json                                    the manifest database that the folder belongs to
rows/<pipeline>.<manifest>.<attempt>.json     the rows and the dead letters of one attempt
_manifests/<pipeline>/<manifest>.<attempt>.json     the record of an attempt
_staging/<manifest>/<attempt>/<task>.json     what the Spark tasks wrote
"""

import json
import re
import shutil
from ast import literal_eval
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.toys.toy_sink.settings import Settings
from tidemark.connections import Lookup
from tidemark.database.client import ManifestDatabase
from tidemark.dataset import Dataset
from tidemark.errors import Fenced, WorkFailed
from tidemark.failpoints import failpoint
from tidemark.findings import Finding, ok
from tidemark.manifest import Manifest, ManifestState, Publication
from tidemark.offsets import Range, TopicPartition
from tidemark.order import TransformOrder
from tidemark.paths import RECORDS, STAGING, RecordName, manifest_staging, staging_folder
from tidemark.problem import Problem
from tidemark.receipt import ObjectKind, Receipt
from tidemark.sinks.base import Fence, Mark, Owner
from tidemark.sinks.capabilities import Leftover, TakesBack
from tidemark.sinks.dead_letters import DeadLetter, dead_letter
from tidemark.sinks.located import Located, Standing

Content = dict[str, list[dict[str, Any]]]  # rows by kind of object

_ROWS = re.compile(r"rows/(?P<pipeline>[^/]+)\.(?P<manifest>\d+)\.(?P<attempt>\d+)\.json")


class ToySink(TakesBack):
    """One folder of JSON files."""

    def __init__(self, pipeline_name: str, settings: Settings) -> None:
        super().__init__(pipeline_name, settings.name)
        self.target = settings.target
        self._folder = Path(settings.folder)
        self._owner = self._folder / "owner.json"

    def dataset(self) -> Dataset:
        return Dataset.of_folder(self.target)

    def claim(self, database_id: str) -> None:
        if self.owner() is None:
            self.hand_over(Owner(database_id))
        self.refuse_foreign(database_id)

    def owner(self) -> Owner | None:
        content = self._read(self._owner)
        return None if content is None else Owner(content["database"], tuple(content["before"]))

    def hand_over(self, owner: Owner) -> None:
        self._write(self._owner, {"database": owner.database, "before": owner.before})

    def order(self, manifest_id: int, attempt: int) -> dict[str, Any]:
        return {}  # the folder is in the settings, and an order knows its own staging

    def records(self, *, own: bool = True, above: int = 0) -> list[RecordName]:
        files = self._folder.glob(f"{RECORDS}/*/*.json")
        names = [RecordName.parse(file.relative_to(self._folder).as_posix()) for file in files]
        return [
            name
            for name in names
            if name and name.manifest_id > above and (name.pipeline_name == self.pipeline_name or not own)
        ]

    def recorded_attempt(self, manifest_id: int) -> int | None:
        return max((name.attempt for name in self.records() if name.manifest_id == manifest_id), default=None)

    def record(self, name: RecordName) -> dict[str, Any] | None:
        return self._read(self._folder / str(name))

    def write_record(
        self, receipt: Receipt, ranges: Sequence[Range], database_id: str, gone: frozenset[str] = frozenset()
    ) -> None:
        content = self.content_of_record(receipt, ranges, database_id, gone)
        self._write(self._folder / self._record_of(receipt), content)

    def put(self, receipt: Receipt, ranges: Sequence[Range], database_id: str, fence: Fence, mark: Mark) -> None:
        fence()
        if not self.has_objects(receipt):
            self._write(self._folder / self._rows_of(receipt), self._joined(receipt))
        failpoint("publish.mid")
        failpoint("publish.before_record")
        fence()
        if (self.recorded_attempt(receipt.manifest_id) or 0) > receipt.attempt:
            raise Fenced("a higher attempt has its record here")
        self.write_record(receipt, ranges, database_id)
        failpoint("publish.before_mark")
        mark()

    def _joined(self, receipt: Receipt) -> Content:
        folder = self._folder / staging_folder(receipt.manifest_id, receipt.attempt)
        parts = [
            self._read(folder / f"{task}.json") for task in {part.staged for part in receipt.objects_of(self.name)}
        ]
        content = {kind.value: [row for part in parts for row in part[kind]] for kind in ObjectKind}
        if _sizes(content) != self._expected(receipt):
            raise WorkFailed("staging holds other rows than the receipt says", sink=self.name)
        return content

    def has_objects(self, receipt: Receipt) -> bool:
        content = self._read(self._folder / self._rows_of(receipt))
        return content is not None and _sizes(content) == self._expected(receipt)

    def same_output(self, before: Receipt, now: Receipt) -> bool:
        return self.holds(before)

    def drop_orphan_record(self, receipt: Receipt) -> None:
        if self.has_record(receipt) and not self.has_objects(receipt):
            self.remove([self._record_of(receipt)])

    def discard(self, receipt: Receipt) -> None:
        self.remove([self._record_of(receipt), self._rows_of(receipt)])
        self.clear_staging(receipt.manifest_id, receipt.attempt)

    def staged_manifests(self) -> list[int]:
        return sorted(int(folder.name) for folder in (self._folder / STAGING).glob("*"))

    def staged_attempts(self, manifest_id: int) -> list[int]:
        return sorted(int(folder.name) for folder in (self._folder / manifest_staging(manifest_id)).glob("*"))

    def clear_staging(self, manifest_id: int, attempt: int) -> None:
        shutil.rmtree(self._folder / staging_folder(manifest_id, attempt), ignore_errors=True)
        for folder in (manifest_staging(manifest_id), STAGING):
            with suppress(OSError):  # it is not empty, or not there
                (self._folder / folder).rmdir()

    def rename_pipeline(self, old: str) -> None:
        for file in [*self._folder.glob(f"{RECORDS}/{old}/*.json"), *self._folder.glob(f"rows/{old}.*.json")]:
            renamed = self._folder / str(file.relative_to(self._folder)).replace(f"/{old}", f"/{self.pipeline_name}", 1)
            renamed.parent.mkdir(exist_ok=True)
            file.rename(renamed)

    def audit(self, database: ManifestDatabase, manifests: Sequence[Manifest], *, deep: bool) -> Iterator[Problem]:
        for manifest in manifests:
            published = manifest.published(self.name)
            receipt = database.receipt(manifest.id, published.attempt) if published else None
            if receipt is not None and not self.has_objects(receipt):
                yield Problem(
                    manifest.id,
                    f"{self._rows_of(receipt)} is missing or holds other rows than were published",
                    f"tidemark replay {self.pipeline_name} --manifest {manifest.id}",
                )
        for left in self.leftovers(database):
            yield Problem(
                left.manifest_id,
                f"{left.key} is not part of what was published",
                f"tidemark repair {self.pipeline_name} --why TEXT",
            )

    def leftovers(self, database: ManifestDatabase) -> list[Leftover]:
        """Of manifests that are done: what attempts other than the published one left."""
        files = {file.relative_to(self._folder).as_posix(): file for file in self._folder.glob("rows/*.json")}
        manifests = database.manifests(self.pipeline_name, [ManifestState.DONE])
        done = {manifest.id: manifest for manifest in manifests if not manifest.alive}
        leftovers: list[Leftover] = []
        for key in sorted(files):
            name = _ROWS.fullmatch(key)
            manifest = done.get(int(name["manifest"])) if name and name["pipeline"] == self.pipeline_name else None
            published = manifest.published(self.name) if manifest else None
            if name and manifest and published and int(name["attempt"]) != published.attempt:
                leftovers.append(Leftover(key, manifest.id, int(name["attempt"])))
        return leftovers

    def remove(self, keys: Sequence[str]) -> None:
        for key in keys:
            (self._folder / key).unlink(missing_ok=True)

    def locate(
        self, manifest: Manifest, published: Publication, receipt: Receipt, at: TopicPartition, offset: int
    ) -> Located:
        place = self._rows_of(receipt)
        content: Content = self._read(self._folder / place) or {}
        for kind, rows in content.items():
            if any((row["_topic"], row["_partition"], row["_offset"]) == (at.topic, at.partition, offset)
                   for row in rows):  # fmt: skip
                what = "a row" if kind == ObjectKind.DATA else "a dead letter"
                return Located(
                    self.name, published.attempt, Standing.HELD, what, ObjectKind(kind), f"{self.target}/{place}"
                )
        return Located(self.name, published.attempt, Standing.MISSING, f"{place} does not hold it")

    def dead_letters(self, receipt: Receipt, *, values: bool) -> Iterator[DeadLetter]:
        content = self._read(self._folder / self._rows_of(receipt))
        if content is None:
            raise FileNotFoundError(self._rows_of(receipt))
        for row in content[ObjectKind.DEAD_LETTER]:
            headers = row["_headers"] and [{**header, "value": _bytes(header["value"])} for header in row["_headers"]]
            read = {"_timestamp": datetime.fromisoformat(row["_timestamp"]), "_key": _bytes(row["_key"]),
                    "_value": _bytes(row["_value"]), "_headers": headers}  # fmt: skip
            letter = dead_letter({**row, **read})
            yield letter if values else replace(letter, key=None, value=None, headers=None)

    def rehearse(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> Iterator[Finding]:
        probe = self._folder / ".doctor"
        self._write(probe, None)
        probe.unlink()
        yield ok(self.name, "files can be written and removed (tried)")

    def _rows_of(self, receipt: Receipt) -> str:
        return f"rows/{self.pipeline_name}.{receipt.manifest_id}.{receipt.attempt}.json"

    def _record_of(self, receipt: Receipt) -> str:
        return str(RecordName(self.pipeline_name, receipt.manifest_id, receipt.attempt))

    def _expected(self, receipt: Receipt) -> dict[str, int]:
        objects = receipt.objects_of(self.name)
        return {kind.value: sum(part.rows for part in objects if part.kind is kind) for kind in ObjectKind}

    @staticmethod
    def _read(file: Path) -> Any:
        """The content of a JSON file; None when it is not there or damaged."""
        try:
            return json.loads(file.read_text())
        except (FileNotFoundError, ValueError):
            return None

    @staticmethod
    def _write(file: Path, content: Any) -> None:
        """Whole, or not at all."""
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}.part")
        part.write_text(json.dumps(content))
        part.replace(file)


def _bytes(text: str | None) -> bytes | None:
    """Bytes from the text that the writer made of them."""
    return None if text is None else bytes(literal_eval(text))


def _sizes(content: Content) -> dict[str, int]:
    return {kind: len(rows) for kind, rows in content.items()}


def open_sink(pipeline_name: str, settings: Settings, lookup: Lookup) -> ToySink:
    return ToySink(pipeline_name, settings)
