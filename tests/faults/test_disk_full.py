"""F7: a disk that is really full, with every amount of space left. A limit on file sizes is tested in
tests/integration.

It needs its own small file system, which only root may mount. Other users skip it; for root it fails if the right to
mount is missing.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.bootstrap.checkout import CHECKOUT
from tests.worlds.world import World

PAGE = 4096  # a tmpfs gives out whole pages, at least one to each file
SIZE = 4 * 1024 * 1024
SYMPTOM = "the disk is full", "No space left on device"  # as docs/operations.md has it


@pytest.fixture
def disk(world: World) -> Iterator[Path]:
    """The lake of the world lies on a tmpfs of 4 MiB."""
    disk = world.folder / "disk"
    disk.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system; CI and make test-faults in a container run as root")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tidemark-test", str(disk)]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    assert mounted.returncode == 0, f"no small file system can be mounted here: {mounted.stderr}"
    (disk / "lake").mkdir()
    world.lake.symlink_to(disk / "lake")
    yield disk
    # A file that could not be closed for want of space stays open until Python collects it: lazily, then.
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path, pages_left: int) -> Path:
    """Ballast that leaves so many pages free."""
    ballast = disk / "ballast"
    size = 0
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                size += file.write(b"\0" * PAGE)
        except OSError:
            file.truncate(size - pages_left * PAGE)
    return ballast


def failure(world: World, disk: Path, pages_left: int) -> str:
    """What a run with so little space says, "" when it is enough; all is whole either way, and right in the end."""
    key = ("--run-key", f"{pages_left} pages")
    world.produce(40)
    ballast = fill(disk, pages_left)
    done = world.here("run", "demo", *key)
    world.assert_whole()
    assert world.listing() == world.exact(), "an attempt that failed takes back what it had put"
    if done.exit_code:
        assert " (".join(SYMPTOM) in done.stderr
        assert "next:  free s" in done.stderr
    ballast.unlink()
    world.ok("retry", "demo")
    world.ok("run", "demo", *key)
    world.assert_complete()
    return done.stderr if done.exit_code else ""


@pytest.mark.thorough
def test_F7_a_disk_with_any_number_of_pages_left_publishes_all_or_nothing(world: World, disk: Path) -> None:
    world.hours = 5
    world.settings["spark"] = {"records_per_task": 1}  # the record names many small files, and needs more than a page
    world.write_pipeline()
    world.produce(40)
    world.ok("run", "demo")
    failures = [failure(world, disk, pages) for pages in (0, 1, 3, 6, 9, 10, 11, 12, 13, 14, 16, 50)]
    messages = [message for message in failures if message]
    assert failures == [*messages, *[""] * (len(failures) - len(messages))], "what was enough is enough with more"
    assert len(messages) < len(failures)
    assert '"{}" (`{}`)'.format(*SYMPTOM) in (CHECKOUT / "docs" / "operations.md").read_text()
    for place in ("cannot stage a file", "_manifests/demo/"):
        assert any(place in message for message in messages), f"no failure at {place}"
