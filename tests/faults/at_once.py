"""Manifests that change the same totals, each in a process of its own, at the same time."""

from tests.worlds.totals_world import TotalsWorld
from tests.worlds.world import wait_ended


def retried_and_replayed_at_once(world: TotalsWorld) -> int:
    """Plan, then retry and then replay all manifests at once; how many there were. Each process must end well."""
    world.ok("plan", "demo", "--run-key", "one")
    ids = [manifest["id"] for manifest in world.manifests()]
    for verb in ("retry", "replay"):
        if verb == "replay":  # else it finds its contributions there, and changes nothing
            for manifest in ids:
                world.damage({"id": manifest})
        at_once = [world.start(verb, "demo", "--manifest", str(manifest)) for manifest in ids]
        for process in at_once:
            ended = wait_ended(process)
            assert ended.returncode == 0, ended.stderr
    return len(ids)
