"""Readers that keep reading while processes die: what they may see, sampled thousands of times.

A sample is one listing, and a read of all files that it names. A file may disappear in between (a replay replaced it).
Then the reader asks again, as the guarantees say, and must not get the same file again.
"""

import json
import random
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.worlds.world import Place, World, places, wait_stopped, wake
from tidemark.database.client import ManifestDatabase
from tidemark.failpoints import FAILPOINTS

SCHEMA = "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, in_round_{} STRING"
Look = Callable[[World], list[Path]]


def exact(world: World) -> list[Path]:
    with ManifestDatabase(world.dsn, "reader") as database:
        return [Path(root, published.path) for _, root, published in database.publications.objects("demo")]


def recorded(world: World) -> list[Path]:
    """The highest record of each manifest, without a database."""
    newest = {path.name.split(".")[0]: path for path in sorted(world.lake.glob("_manifests/demo/*.json"))}
    return [
        world.lake / object_["path"] for path in newest.values() for object_ in json.loads(path.read_text())["objects"]
    ]


def listing(world: World) -> list[Path]:
    """Every file below the layout's folders."""
    return [path for folder in ("raw", "_dead_letters") for path in world.lake.glob(f"{folder}/**/[!.]*.parquet")]


@dataclass
class Reader:
    """One reader in its own thread; ``wrong`` says what it saw that nobody may see."""

    world: World
    look: Look
    whole: bool
    samples: int = 0
    most: int = 0
    manifests: set[int] = field(default_factory=set)  # that the last sample showed
    wrong: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.over.wait(0.005) and not self.wrong:
            try:
                self.judge(self.sample())
            except Exception as error:
                self.wrong.append(repr(error))

    def sample(self) -> dict[Path, Counter[Place]]:
        """The rows of every file named; asks again when one is gone, which then must not be named any more."""
        gone: Path | None = None
        while True:
            seen: dict[Path, Counter[Place]] = {}
            with suppress(FileNotFoundError):
                paths = self.look(self.world)
                assert gone not in paths, f"{gone} is named, and is not there"
                for gone in paths:
                    seen[gone] = places([gone])
                return seen

    def judge(self, seen: dict[Path, Counter[Place]]) -> None:
        by_manifest: dict[int, Counter[Place]] = defaultdict(Counter)
        for path, rows in seen.items():
            by_manifest[int(path.name.split("-")[0])].update(rows)
        everything = sum(by_manifest.values(), Counter[Place]())
        self.samples += 1
        self.most = max(self.most, len(everything))
        unknown = set(everything) - set(self.world.everything())
        if unknown:
            self.wrong.append(f"records that nobody sent: {sorted(unknown)[:3]}")
        if self.whole:
            spans = spans_of(self.world, list(by_manifest))
            self.wrong += [
                f"manifest {manifest}: not as planned"
                for manifest, rows in by_manifest.items()
                if rows != spans[manifest]
            ]
            self.wrong += [f"{place} twice" for place, count in everything.items() if count > 1]
            self.wrong += [f"manifest {manifest} is gone" for manifest in sorted(self.manifests - set(by_manifest))]
            self.manifests = set(by_manifest)


def spans_of(world: World, ids: list[int]) -> dict[int, Counter[Place]]:
    """The offsets each manifest was planned with; that never changes."""
    with ManifestDatabase(world.dsn, "reader") as database:
        return {
            manifest.id: Counter(
                (covered.at.topic, covered.at.partition, offset)
                for covered in manifest.ranges
                for offset in range(covered.start, covered.end)
            )
            for manifest in database.manifests.find(ids=ids)
        }


@contextmanager
def reading(world: World) -> Iterator[list[Reader]]:
    """An exact, a record and a listing reader at work; in the end none has seen anything wrong."""
    readers = [Reader(world, exact, True), Reader(world, recorded, True), Reader(world, listing, False)]
    threads = [threading.Thread(target=reader.run) for reader in readers]
    for thread in threads:
        thread.start()
    try:
        yield readers
    finally:
        for reader in readers:
            reader.over.set()
        for thread in threads:
            thread.join()
    assert [reader.wrong for reader in readers] == [[], [], []]


def strike(world: World, chance: random.Random, round_: int) -> None:
    """New records, a run that is killed and retried, a replay of other rows that is killed and repeated, and another
    that is paused, overtaken and woken."""
    key = ("--run-key", f"run {round_}")
    world.produce(40, bad_every=9)
    point = chance.choice(FAILPOINTS)
    killed = world.tidemark("run", "demo", *key, failpoint=f"{point}:kill9", env=once(world, round_, "run"))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    world.ok("retry", "demo")
    world.ok("run", "demo", *key)
    write_other_rows(world, str(round_))
    manifest = str(chance.choice(world.manifests())["id"])
    point = chance.choice([point for point in FAILPOINTS if point.startswith(("stage", "publish"))])
    replay = ("replay", "demo", "--manifest", manifest)
    killed = world.tidemark(*replay, failpoint=f"{point}:kill9", env=once(world, round_, "replay"))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    if chance.random() < 0.5:
        world.ok("retry", "demo")
    world.ok(*replay)
    write_other_rows(world, f"{round_}_again")
    paused = world.start(*replay, failpoint="publish.mid:stop", env=once(world, round_, "pause"))
    wait_stopped(paused)
    world.ok(*replay, "--take-over")
    wake(paused)


def write_other_rows(world: World, column: str) -> None:
    """From here on the same records make other rows, so a replay has to move."""
    world.settings["decode"] = {"format": "json", "schema": SCHEMA.format(column)}
    world.write_pipeline()


def once(world: World, round_: int, what: str) -> dict[str, str]:
    """A failpoint acts once per TIDEMARK_HOME: a new one for each, since the lake's root is absolute."""
    return {"TIDEMARK_HOME": str(world.folder / f"home-{what}-{round_}")}


def test_readers_that_look_all_the_time_see_manifests_whole_and_nothing_twice(world: World) -> None:
    chance = random.Random(1)
    with reading(world) as readers:
        for round_ in range(3):
            strike(world, chance, round_)
    world.assert_complete()
    assert all(reader.samples > 20 and reader.most > 60 for reader in readers), readers


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [2])
def test_readers_see_manifests_whole_through_many_kills(world: World, seed: int) -> None:
    chance = random.Random(seed)
    with reading(world) as readers:
        for round_ in range(8):
            strike(world, chance, round_)
    world.assert_complete()
    assert all(reader.samples > 100 and reader.most > 250 for reader in readers), readers
