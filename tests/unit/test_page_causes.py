"""How the page tells a cause: what, reasons, place, and commands, each of them whole."""

import re

import pytest

from tests.unit.test_next_steps import TAKEN_BY
from tidemark.airflow.page.causes import (
    FLAGS,
    GROUPS,
    PLACEHOLDERS,
    Instruction,
    cause_of_problem,
    cause_of_text,
    steps_of,
)
from tidemark.airflow.page.state_words import WORDS
from tidemark.cli import main
from tidemark.errors import TooManyDeadLetters, WorkFailed
from tidemark.model.manifest import ManifestState
from tidemark.operations.status import PipelineProblem, State


def test_the_cause_stands_alone_and_reasons_place_and_commands_come_apart() -> None:
    error = TooManyDeadLetters(
        "11 of 200 records cannot be used, and max_dead_letters is 5%: 9 records: value is not JSON: Expecting value "
        "(first orders-0 offset 45); 2 records: field id: absent (first orders-1 offset 7)",
        next_step="nothing of this attempt is published. Look at them: tidemark peek demo --topic orders "
        "--partition 0 --from 45; correct the schema or the producer, or raise max_dead_letters; then: "
        "tidemark retry demo",
        pipeline="demo",
        manifest=3,
        attempt=2,
        topic="orders",
        partition=0,
        offset=45,
    )
    cause = cause_of_text(str(error), error.next_step, ["demo"])
    assert cause.what == "11 of 200 records cannot be used, and max_dead_letters is 5%"
    assert cause.reasons == (
        "9 records: value is not JSON: Expecting value (first orders-0 offset 45)",
        "2 records: field id: absent (first orders-1 offset 7)",
        "attempt 2",
    )
    assert cause.place == "orders-0 offset 45"
    assert cause.record == ("orders", "0", "45")
    assert cause.steps == (
        Instruction(
            "nothing of this attempt is published. Look at them",
            ("tidemark peek demo", "--topic orders", "--partition 0", "--from 45"),
        ),
        Instruction(
            "correct the schema or the producer, or raise max_dead_letters; then",
            ("tidemark retry demo",),
        ),
    )


@pytest.mark.parametrize("step", TAKEN_BY)
def test_each_command_that_messages_name_is_found_whole_and_nothing_after_it_is(step: str) -> None:
    """The names in it are as people choose them: only that of the pipeline is known."""
    names = iter(("demo", "lake", "orders"))
    command = "tidemark " + re.sub(
        r"\{\}", lambda _: next(names), re.sub(r"(--(?:manifest|partition|from)) \{\}", r"\1 3", step)
    )
    for after in ("", "; then: look again", ", or wait", ". It names all", "; then: tidemark audit demo"):
        steps = steps_of(f"do this: {command}{after}", ["demo"])
        assert steps[0].words == "do this"
        assert " ".join(steps[0].command) == command
        assert all(part.count("--") <= 1 for part in steps[0].command)
        assert (len(steps) == 1) == (not after)


def test_the_cause_stands_before_when_it_was_seen() -> None:
    what = "table public.customers does not exist any more; published there: 1 manifest"
    seen = "plan has failed since 2026-03-01 10:00 UTC"
    problem = PipelineProblem(None, f"{seen}: {what}", "tidemark run demo", kind=State.FAILED, headline=what)
    cause = cause_of_problem(problem, None, ["demo"])
    assert cause.what == "table public.customers does not exist any more"
    assert cause.reasons == ("published there: 1 manifest", seen)
    assert cause.steps == (Instruction("", ("tidemark run demo",)),)


@pytest.mark.parametrize(
    ("text", "what", "reasons"),
    [
        (
            "Kafka does not answer within 10 s at kafka:9092 (it ended: timed out; kafka: refused (after 0ms))",
            "Kafka does not answer within 10 s at kafka:9092",
            ("it ended: timed out", "kafka: refused (after 0ms)"),
        ),
        ("a file with 14 rows is missing: raw/a.parquet", "a file with 14 rows is missing", ("raw/a.parquet",)),
        ("the disk is full; look there", "the disk is full", ("look there",)),
        ("manifest 3: gone", "manifest 3: gone", ()),
    ],
)
def test_a_cause_ends_where_its_details_begin(text: str, what: str, reasons: tuple[str, ...]) -> None:
    cause = cause_of_text(text)
    assert (cause.what, cause.reasons) == (what, reasons)


def test_what_messages_leave_to_a_person_is_a_field_of_the_page() -> None:
    left = {word for step in TAKEN_BY for word in step.split() if word.isupper()}
    assert left <= PLACEHOLDERS


def test_words_after_a_command_are_none_of_it() -> None:
    assert steps_of("`tidemark audit demo --deep` names all of them", ["demo"]) == (
        Instruction("", ("tidemark audit demo", "--deep")),
        Instruction("names all of them"),
    )
    assert steps_of("start one") == (Instruction("start one"),)
    assert steps_of("") == ()


def test_groups_and_flags_are_those_of_the_command_line() -> None:
    assert set(main.GROUPS) == GROUPS
    parameters = [parameter for command in main.NAMED.values() for parameter in command.load().params]
    flags = {name for parameter in parameters if getattr(parameter, "is_flag", False) for name in parameter.opts}
    assert {name for name in flags if name.startswith("--")} == FLAGS


def test_a_message_without_reasons_is_one_sentence_and_its_own_lines_follow() -> None:
    assert cause_of_text(str(WorkFailed("there is no Spark", next_step="start one")), "start one").what == (
        "there is no Spark"
    )
    cause = cause_of_text("Spark: it ended\nline two\nnext: look", "look")
    assert (cause.what, cause.reasons) == ("Spark: it ended", ("line two",))


def test_every_state_of_a_manifest_has_a_word_of_status() -> None:
    assert {*WORDS} == {*ManifestState, "abandoned"}
