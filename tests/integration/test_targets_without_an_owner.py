"""A target that has lost what says who owns it, and what is published there is there still: the step leads out."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worlds.table_world import TableWorld
from tests.worlds.world import World


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_text("")


def cut(path: Path) -> None:
    path.write_text(path.read_text()[:10])


def follow(world: World) -> None:
    """Adopt, as the message says, and replay what that lists."""
    adopted = world.ok("db", "adopt", "demo", "--why", "a message said so")
    assert "this database owns it again" in adopted
    for manifest in world.manifests():
        if f"tidemark replay demo --manifest {manifest['id']}" in adopted:
            world.ok("replay", "demo", "--manifest", str(manifest["id"]))
    world.ok("run", "demo")
    world.assert_complete()
    assert world.status("demo")[0]["state"] == "ok"


@pytest.mark.parametrize("lose", [remove, empty, cut])
def test_a_lake_without_its_owner_is_not_called_empty_and_adopted(world: World, lose: Callable[[Path], None]) -> None:
    world.produce(20)
    world.ok("run", "demo")
    owner = world.lake / "_manifests" / "_owner.json"
    lose(owner)
    world.produce(20)
    refused = world.here("run", "demo")
    told = world.here("audit", "demo")
    if lose is remove:
        assert "has lost what says which database owns it" in refused.stderr
    else:
        assert "_owner.json, which says who writes there, is damaged" in refused.stderr
        assert "next:  nothing was written; restore it from a copy; or, where no other" in refused.stderr
        owner.unlink()
    for output in (refused.stderr, told.stdout):
        assert "tidemark db adopt demo --why TEXT" in output
        assert "is empty" not in output
    follow(world)


def test_a_table_without_what_tidemark_keeps_beside_it_is_not_called_empty_and_adopted(
    make_table_world: Callable[..., TableWorld],
) -> None:
    world = make_table_world()
    for _ in range(2):
        world.produce(20)
        world.ok("run", "demo")
    world.execute("DROP SCHEMA tidemark_target CASCADE")
    world.produce(20)
    refused = world.here("run", "demo")
    [told] = world.here("audit", "demo").stdout.splitlines()
    for output in (refused.stderr, told):
        assert "public.latest has lost what says which database owns it, and manifests are published there" in output
        assert "tidemark db adopt demo --why TEXT" in output
    follow(world)


def test_what_is_gone_as_a_whole_is_not_adopted(world: World) -> None:
    world.produce(20)
    world.ok("run", "demo")
    world.lake.rename(world.folder / "elsewhere")
    refused = world.here("db", "adopt", "demo", "--why", "a test")
    assert refused.exit_code == 1
    assert "is empty, and manifests are published there" in refused.stderr
    (world.folder / "elsewhere").rename(world.lake)
    world.assert_complete()
