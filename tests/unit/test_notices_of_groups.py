"""What members of a group have to tell at once is one message; each of them is remembered by itself."""

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.errors import NotDone
from tidemark.operations.notify import Message, notify
from tidemark.operations.status import PipelineProblem, State


def status(name: str, *whats: str, kind: State = State.FAILED) -> Any:
    problems = tuple(
        PipelineProblem(number, what, f"tidemark retry {name}", kind=kind) for number, what in enumerate(whats)
    )
    return SimpleNamespace(pipeline_name=name, problems=problems, unseen=(), healthy=not problems)


class People:
    """Those who are told, and what they got."""

    def __init__(self, memory: Path) -> None:
        self.memory, self.got, self.answers = memory, list[Message](), True

    def deliver(self, message: Message) -> None:
        if not self.answers:
            raise NotDone("a notice was not delivered")
        self.got.append(message)

    def told(self, *statuses: Any, dry_run: bool = False) -> list[str]:
        """The texts of one call."""
        self.got.clear()
        sent = notify(
            lambda: statuses, self.memory, self.deliver, after=timedelta(), is_gone=lambda _: True, dry_run=dry_run
        )
        assert dry_run or sent == self.got
        return [message.text() for message in sent]


@pytest.fixture
def people(tmp_path: Path) -> People:
    return People(tmp_path / "notified.json")


def test_members_that_fail_at_once_are_one_message_and_a_later_one_another(people: People) -> None:
    good = [status("shop.a"), status("shop.b")]
    bad = [status("shop.c", "c is bad"), status("shop.d", "d is bad", "d is worse", kind=State.BLOCKED)]
    single = status("single", "it is bad")
    folded, alone = people.told(*good, *bad, single)
    assert folded.splitlines() == [
        "shop: 2 ok, 2 need you",
        "shop.c: failed: c is bad",
        "next: tidemark retry shop.c",
        "shop.d: blocked: d is bad",
        "next: tidemark retry shop.d",
        "shop.d: blocked: d is worse",
        "next: tidemark retry shop.d",
    ]
    assert alone.startswith("single: failed: it is bad")
    message = people.got[0].message()
    assert (message["pipeline"], message["over"]) == ("shop", False)
    assert [notice["pipeline"] for notice in message["notices"]] == ["shop.c", "shop.d", "shop.d"]
    assert people.told(*good, *bad, single) == []
    [later] = people.told(good[0], status("shop.b", "b is bad"), *bad, single)
    assert later.startswith("shop.b: failed: b is bad")


def test_what_is_over_is_one_message_too(people: People) -> None:
    people.told(status("shop.a", "a is bad"), status("shop.b", "b is bad"), status("shop.c", "c is bad"))
    [over] = people.told(status("shop.a"), status("shop.b"), status("shop.c", "c is bad"))
    assert over.splitlines() == [
        "shop: 2 ok, 1 needs you", "shop.a: no longer failed: a is bad", "shop.b: no longer failed: b is bad"
    ]  # fmt: skip
    [last] = people.told(status("shop.a"), status("shop.b"), status("shop.c"))
    assert last == "shop.c: no longer failed: c is bad"


def test_a_message_that_is_not_delivered_is_told_whole_by_the_next_call(people: People) -> None:
    bad = [status("shop.a", "a is bad"), status("shop.b", "b is bad")]
    assert len(people.told(*bad, dry_run=True)) == 1
    people.answers = False
    with pytest.raises(NotDone):
        people.told(*bad)
    people.answers = True
    [told] = people.told(*bad)
    assert told.startswith("shop: 0 ok, 2 need you")


def test_members_of_two_groups_and_a_file_without_a_readable_name_are_not_folded(people: People) -> None:
    told = people.told(status("a.x", "bad"), status("b.x", "bad"), status("c.yaml", "bad"), status("c.yml", "bad"))
    assert len(told) == 4
