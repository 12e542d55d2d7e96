"""A manifest of too many objects is refused before anything of it is published, and says what makes fewer."""

from pathlib import Path

import pytest

from tests.behaviours.sink_examples import RANGES, FilesExample, agree, plan_two_manifests
from tests.sink_faces import put_into
from tidemark.config.base import LoadContext
from tidemark.database.client import ManifestDatabase
from tidemark.errors import SinkRefused
from tidemark.sinks.files.settings import Settings
from tidemark.sinks.settings import SinkSettings

ADVICE = "a coarser layout (by day instead of by hour), or larger slices"


class Bounded(FilesExample):
    """A lake whose manifests may have so many objects; thirty records of three hours make four, with dead letters."""

    most = 4

    def settings(self) -> SinkSettings:
        raw = {"root": "lake", "max_objects": self.most}
        return Settings.model_validate(raw, context=LoadContext(self.folder, self.folder))

    def allow(self, most: int) -> None:
        """The pipeline file says another number from now on."""
        self.most = most
        self.config = self.settings()
        self.sink = self.open()


def put(example: Bounded, attempt: int) -> None:
    put_into(example.sink, example.stage(attempt), RANGES, example.database.id(), agree, agree)


def test_more_objects_than_allowed_are_refused_and_none_is_published(tmp_path: Path, database: str) -> None:
    with ManifestDatabase(database, "test") as manifests:
        plan_two_manifests(manifests)
        example = Bounded(tmp_path, manifests, "")
        receipt = example.stage(1)
        assert len(receipt.objects) == 4
        example.allow(3)
        with pytest.raises(SinkRefused, match="the manifest has 4 objects, and at most 3 are allowed") as refused:
            put_into(example.sink, receipt, RANGES, manifests.id(), agree, agree)
        assert ADVICE in refused.value.next_step
        left = [path for path in example.lake.rglob("*") if path.is_file() and "_staging" not in path.parts]
        assert [path.name for path in left] == ["_owner.json"], "nothing was moved"
        example.allow(4)
        put(example, 2)
        assert len(example.seen()) == 27


def test_a_task_stops_at_the_first_file_too_many(tmp_path: Path, database: str) -> None:
    with ManifestDatabase(database, "test") as manifests:
        plan_two_manifests(manifests)
        example = Bounded(tmp_path, manifests, "")
        example.allow(3)
        with pytest.raises(SinkRefused, match="one task has made 3 files, and at most 3 are allowed") as refused:
            example.stage(1)
        assert ADVICE in refused.value.next_step
        assert not list(example.lake.rglob("*.parquet")), "what the task had staged is gone"
