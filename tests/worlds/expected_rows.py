"""Expectations for numbered rows, and what must be reported about rows that do not meet them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.worlds.world import World

# One is counted, one makes dead letters; row 17 meets neither, and every 65th after it.
EXPECT: tuple[dict[str, Any], ...] = (
    {"name": "no fifth", "check": "n % 5 <> 2"},
    {"name": "no thirteenth", "check": "n % 13 <> 4", "otherwise": "dead_letter", "at_most": "50%"},
)
Told = dict[str, tuple[int, int, list[tuple[int, int]]]]


def is_counted(number: int) -> bool:
    return number % 5 == 2


def is_refused(number: int) -> bool:
    return number % 13 == 4


def assert_told(world: "World") -> None:
    """Each manifest tells each condition that its rows do not meet, and each sink has the dead letters of that once."""
    refused = 0
    for manifest in world.manifests():
        shown = world.json("show", str(manifest["id"]))
        places = [
            (covered["partition"], offset)
            for covered in shown["ranges"]
            for offset in range(covered["start"], covered["end"])
        ]
        asked = {
            place: number
            for place in places
            if (number := place[1] * world.partitions + place[0]) not in world.undecodable
        }
        assert told_by(shown) == {
            "no fifth": unmet([place for place, number in asked.items() if is_counted(number)], len(asked)),
            "no thirteenth": unmet([place for place, number in asked.items() if is_refused(number)], len(asked)),
        }, manifest["id"]
        refused += sum(map(is_refused, asked.values()))
    for sink in {shown["sink"] for manifest in world.manifests() for shown in manifest["publications"]}:
        groups = world.json("dead-letters", world.name, "--sink", sink)["groups"]
        of_expectations = [(each["reason"], each["count"]) for each in groups if each["error_class"] == "expectation"]
        assert of_expectations == [("expect no thirteenth", refused)], sink


def unmet(places: list[tuple[int, int]], rows: int) -> tuple[int, int, list[tuple[int, int]]]:
    return rows, len(places), sorted(places)[:3]


def told_by(shown: dict[str, Any]) -> Told:
    return {
        count["name"]: (
            count["rows"],
            count["unmet"],
            [(place["partition"], place["offset"]) for place in count["examples"]],
        )
        for count in shown["expectations"]
    }
