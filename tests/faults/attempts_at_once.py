"""Manifests that change the same rows or totals at the same time, each in its own process."""

from tests.worlds.world import World, wait_ended


def retried_and_replayed_at_once(world: World) -> int:
    """Plan, then retry and then replay all manifests at once; how many there were. Each process must end well."""
    world.ok("plan", "demo", "--run-key", "one")
    ids = [manifest["id"] for manifest in world.manifests()]
    for verb in ("retry", "replay"):
        if verb == "replay":  # else it finds its output there, and changes nothing
            for published in world.manifests():
                world.damage(published)
        at_once = [world.start(verb, "demo", "--manifest", str(manifest)) for manifest in ids]
        for process in at_once:
            ended = wait_ended(process)
            assert ended.returncode == 0, ended.stderr
    return len(ids)
