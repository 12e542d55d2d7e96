"""The column that orders the rows of a key is remembered: by another one, rows would be missing that lost before."""

import pytest

from tests.worlds.world import World


@pytest.mark.parametrize("kind", ["keyed_iceberg", "keyed_delta", "table"])
@pytest.mark.parametrize("other", ["at", None])
def test_another_order_is_refused_before_anything_is_planned_and_the_old_one_goes_on(
    request: pytest.FixtureRequest, kind: str, other: str | None
) -> None:
    world: World = request.getfixturevalue(f"make_{kind}_world")()
    [sink] = world.settings["sinks"]
    [settings] = sink.values()
    world.produce(60)
    world.ok("run", "demo")
    planned = [manifest["id"] for manifest in world.manifests()]
    settings["order_by"] = other
    world.write_pipeline()
    world.produce(20)
    refused = world.here("run", "demo")
    now = "by at" if other else "by their offsets"
    assert refused.exit_code == 2
    assert f"has ordered the rows of a key by n, the pipeline file now orders them {now}" in refused.stderr
    assert "tidemark fill demo NAME --why TEXT" in refused.stderr
    assert [manifest["id"] for manifest in world.manifests()] == planned
    settings["order_by"] = "n"
    world.write_pipeline()
    world.ok("run", "demo")
    world.assert_complete()
