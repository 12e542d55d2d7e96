"""A message that tells a person to run a command can be copied: it names the pipeline and the manifest."""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tidemark.cli.main import GROUPS, NAMED
from tidemark.errors import TidemarkError, Unavailable, about

CHECKOUT = Path(__file__).parents[2]
PACKAGE = CHECKOUT / "include" / "tidemark"
DASHBOARD = CHECKOUT / "docs" / "monitoring" / "grafana.json"
PLACEHOLDERS = re.compile(r"\b(?:PIPELINE|MANIFEST|ID)\b(?!\w)")
WANT_A_NAME = [
    words
    for words, command in NAMED.items()
    if any(
        parameter.name in ("pipeline_name", "manifest_id") and parameter.required for parameter in command.load().params
    )
]
COMMAND = re.compile(rf"\btidemark ({'|'.join(WANT_A_NAME)})\b(?!-)(?! \{{| \d)")
WORDS = rf"(?:{'|'.join(GROUPS)}) [a-z][a-z-]*+|[a-z][a-z-]*+"  # a group is no command without one of its own
STEP = re.compile(rf"\btidemark ({WORDS})((?: (?:\{{\w*\}}|--[a-z-]+|[A-Z]+|\d+)(?![\w-]))*+)(?!`)")
VALUES = {"TIME": "2024-03-01T10:00Z"}
# Each step that messages name, and a test that takes it where they lead there; words in capitals are a person's.
TAKEN_BY = {
    "accept damage {} --manifest {} --why TEXT": (
        "faults/test_targets_that_go_back.py",
        "test_T8_damage_that_the_source_cannot_mend_is_accepted_once_and_not_missed_again",
    ),
    "accept expectation {} --manifest {} --why TEXT": (
        "integration/test_expectations.py",
        "test_more_rows_than_allowed_block_the_manifest_until_a_person_accepts_them",
    ),
    "accept loss {} --why TEXT": (
        "faults/test_broker_dies.py",
        "test_R11_records_deleted_while_spark_reads_fail_the_attempt_and_a_person_gives_them_up",
    ),
    "accept topic {} --topic {} --why TEXT": (
        "integration/test_decisions.py",
        "test_a_recreated_topic_is_refused_until_accepted_and_then_read_from_its_beginning",
    ),
    "accept truncation {} --topic {} --partition {} --why TEXT": (
        "faults/test_broker_dies.py",
        "test_P10_a_log_cut_where_a_transaction_was_aborted_is_read_from_there_on",
    ),
    "db adopt {} --why TEXT": (
        "faults/test_targets_that_go_back.py",
        "test_T3_output_that_a_failed_over_database_has_no_receipt_of_is_refused_and_adopted",
    ),
    "audit {}": (
        "integration/test_state.py",
        "test_what_an_audit_has_found_stands_until_one_finds_nothing",
    ),
    "audit {} --deep": (
        "integration/test_where.py",
        "test_a_file_that_is_gone_or_damaged_is_missing_and_the_audit_is_advised",
    ),
    "dead-letters {}": (
        "integration/test_state.py",
        "test_a_run_that_publishes_dead_letters_alone_is_not_ok",
    ),
    "doctor": (
        "integration/test_doctor.py",
        "test_everything_that_is_wrong_is_said_at_once_each_with_what_to_do",
    ),
    "doctor {}": (
        "integration/test_decoders_of_topics.py",
        "test_topics_of_two_formats_become_rows_of_one_table",
    ),
    "extend-back {} --why TEXT": (
        "integration/test_decisions.py",
        "test_extending_back_reads_what_lies_before_the_anchor_beside_new_runs",
    ),
    "fill {} NAME --why TEXT": (
        "integration/test_sinks_of_a_pipeline.py",
        "test_the_target_of_a_retired_sink_is_used_again_and_what_lies_there_is_no_stray",
    ),
    "fill {} {} --why TEXT": (
        "integration/test_sinks_of_a_pipeline.py",
        "test_a_sink_added_later_lacks_what_was_done_until_it_is_filled",
    ),
    "history {}": (
        "integration/test_generations.py",
        "test_the_history_says_who_decided_what_and_why",
    ),
    "hours {}": (
        "integration/test_page.py",
        "test_the_calendar_has_a_row_for_each_day_and_a_cell_for_each_hour_that_leads_to_it",
    ),
    "lag {}": (
        "integration/test_unfinished.py",
        "test_a_pipeline_is_late_by_its_lag_and_by_the_age_of_what_is_published",
    ),
    "manifests": (
        "integration/test_bad_input.py",
        "test_the_right_names_are_in_the_lists_that_are_advised_when_one_does_not_exist",
    ),
    "manifests {}": (
        "integration/test_bad_input.py",
        "test_the_right_names_are_in_the_lists_that_are_advised_when_one_does_not_exist",
    ),
    "db migrate": ("integration/test_upgrades.py", "test_every_command_over_older_tables_says_migrate"),
    "monitor notify": (
        "integration/test_notify.py",
        "test_what_cannot_be_delivered_is_told_by_the_next_call_and_the_address_is_no_secret_told",
    ),
    "objects {} --sink {}": (
        "integration/test_decided_with_two_sinks.py",
        "test_schedule_13_of_two_sinks_of_files_the_exact_reader_names_one",
    ),
    "peek {}": (
        "integration/test_logic_of_pipelines.py",
        "test_on_error_fail_names_transform_file_line_and_offset",
    ),
    "peek {} --topic {} --partition {} --from {}": (
        "integration/test_peek.py",
        "test_the_records_that_a_run_refused_are_looked_at_as_its_message_says",
    ),
    "plan {}": (
        "integration/test_decided_with_two_sinks.py",
        "test_the_sink_to_read_is_known_after_the_plan_that_its_refusal_names",
    ),
    "plan {} --dry-run": (
        "integration/test_state.py",
        "test_a_topic_that_is_another_one_is_not_ok_before_a_plan_has_met_it",
    ),
    "rename pipeline {} NEW --why TEXT": (
        "integration/test_renamed_pipelines.py",
        "test_a_file_that_was_renamed_by_hand_alone_is_not_planned_from_the_first_record_on",
    ),
    "rename pipeline {} {} --why TEXT": (
        "integration/test_renamed_pipelines.py",
        "test_killed_anywhere_it_is_repeated_and_until_then_nothing_else_is_allowed",
    ),
    "rename sink {} OLD {} --why TEXT": (
        "integration/test_sinks_of_a_pipeline.py",
        "test_a_target_is_adopted_by_the_name_that_its_sink_had_and_renamed_after_that",
    ),
    "rename sink {} {} {} --why TEXT": (
        "integration/test_sinks_of_a_pipeline.py",
        "test_a_renamed_sink_is_refused_by_every_verb_until_it_is_renamed_in_the_database",
    ),
    "repair {} --why TEXT": (
        "integration/test_audit.py",
        "test_repair_removes_what_a_restored_database_forgot_only_when_its_rows_are_published",
    ),
    "replay {} --damaged": (
        "integration/test_tables_that_are_lost.py",
        "test_a_table_that_was_dropped_is_missed_by_every_command_and_begun_again_only_when_a_person_accepts_it",
    ),
    "replay {} --manifest {}": (
        "integration/test_audit.py",
        "test_damage_is_one_line_that_names_the_manifest_and_a_replay_mends_it",
    ),
    "replay {} --manifest {} --accept-shrunken --why TEXT": (
        "faults/test_matrix.py",
        "test_R12_records_that_compaction_really_took_block_the_replay_and_stay_published",
    ),
    "replay {} --manifest {} --append-again --why TEXT": (
        "providers/topic/integration/test_topic_sink.py",
        "test_other_messages_follow_those_of_a_retired_sink_when_a_person_says_so",
    ),
    "replay {} --manifest {} --take-over": (
        "integration/test_at_work.py",
        "test_an_attempt_that_is_taken_over_wakes_and_changes_nothing",
    ),
    "retire pipeline {} --undo --why TEXT": (
        "integration/test_retired_pipelines.py",
        "test_it_is_refused_while_there_is_a_file_and_done_without_one",
    ),
    "retire pipeline {} --why TEXT": (
        "integration/test_retired_pipelines.py",
        "test_it_is_refused_while_there_is_a_file_and_done_without_one",
    ),
    "retire sink {} {} --why TEXT": (
        "integration/test_sinks_of_a_pipeline.py",
        "test_a_sink_taken_out_of_the_file_stays_known_until_it_is_retired",
    ),
    "retry {}": ("faults/test_ways_out.py", "test_whoever_does_what_the_messages_say_comes_to_an_end"),
    "retry {} --manifest {}": (
        "integration/test_generations.py",
        "test_a_topic_gets_what_lies_below_a_cut_before_what_came_after_it",
    ),
    "run {}": (
        "integration/test_state.py",
        "test_a_plan_that_was_killed_is_told_when_it_should_have_ended_unless_it_had_planned",
    ),
    "show {}": (
        "integration/test_at_work.py",
        "test_an_attempt_at_work_is_taken_over_only_when_a_person_says_so",
    ),
    "spark jars": (
        "integration/test_spark_jars.py",
        "test_jars_of_another_version_are_named_and_fitting_ones_fetched_once",
    ),
    "spark serve": (
        "spark/test_spark_server.py",
        "test_doctor_finds_on_the_server_the_connections_that_tasks_get",
    ),
    "spark serve --port {}": (
        "spark/test_spark_server.py",
        "test_a_server_that_is_killed_fails_the_attempt_and_a_new_one_does_the_next",
    ),
    "status": (
        "integration/test_retired_pipelines.py",
        "test_a_name_that_was_never_planned_is_told_with_the_nearest",
    ),
    "status {}": (
        "integration/test_bundles_of_a_group.py",
        "test_one_bad_topic_fails_the_task_by_name_and_a_cleared_one_does_what_is_not_done",
    ),
    "validate": ("integration/test_bad_input.py", "test_a_pipeline_file_that_is_wrong"),
}


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Every text in a module but docstrings, expressions of f-strings as ``{}``."""
    tree = ast.parse(path.read_text())
    spared: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            assert isinstance(node.body[0], ast.Expr)
            spared.add(id(node.body[0].value))
        if isinstance(node, ast.JoinedStr):
            spared |= {id(part) for part in node.values}
            yield node.lineno, "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in spared:
            yield node.lineno, node.value


def texts_of(value: object) -> Iterator[str]:
    """Every text in a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts_of(inner)


@cache
def all_messages() -> list[tuple[str, str]]:
    """Those of the package and of the dashboard, whose variable stands for a name as an expression does."""
    on_dashboard = [text.replace("$pipeline", "{}") for text in texts_of(json.loads(DASHBOARD.read_text()))]
    return [(DASHBOARD.name, text) for text in on_dashboard] + [
        (f"{path.relative_to(PACKAGE)}:{line}", text)
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, text in messages(path)
    ]


def test_the_walk_sees_messages_and_the_commands_in_them() -> None:
    texts = [text for _, text in all_messages()]
    assert sum("tidemark retry {" in text for text in texts) > 20
    assert ("grafana.json", "tidemark retry {} processes them") in all_messages()
    assert {"retry", "replay", "show", "lag"} <= set(WANT_A_NAME)
    assert COMMAND.search("then: tidemark retry")
    assert COMMAND.search("tidemark replay --manifest 3")
    assert not COMMAND.search("then: tidemark retry {pipeline}")


def test_no_message_has_a_word_in_the_place_of_a_name() -> None:
    metavars = {
        ("cli/options.py", "PIPELINE"),
        ("cli/options.py", "[PIPELINE]"),
        ("cli/prepare.py", "[FILE|PIPELINE]..."),
        ("cli/inspect.py", "ID"),
        ("cli/inspect.py", "MANIFEST"),
    }
    assert [
        (where, text)
        for where, text in all_messages()
        if PLACEHOLDERS.search(text) and (where.partition(":")[0], text) not in metavars
    ] == []


def test_every_command_in_a_message_names_what_it_is_about() -> None:
    assert [(where, text) for where, text in all_messages() if COMMAND.search(text)] == []


def test_whoever_knows_the_pipeline_completes_an_error_of_a_place_that_does_not() -> None:
    with pytest.raises(Unavailable) as caught, about(pipeline="flights", manifest=3):
        raise Unavailable("no answer", next_step="tidemark replay {pipeline} --manifest {manifest}", sink="lake")
    assert caught.value.next_step == "tidemark replay flights --manifest 3"
    assert caught.value.context == {"pipeline": "flights", "manifest": 3, "sink": "lake"}


def test_what_an_error_knows_itself_stays() -> None:
    error = TidemarkError("x", next_step="tidemark retry {pipeline}", pipeline="flights")
    assert error.next_step == "tidemark retry flights"
    error.within(pipeline="orders", manifest=None)
    assert (error.next_step, error.context) == ("tidemark retry flights", {"pipeline": "flights"})


def steps() -> dict[str, list[str]]:
    """Each step that messages name, ``{}`` for what a message fills in, and where."""
    where_of: dict[str, list[str]] = {}
    for where, text in all_messages():
        for command, words in STEP.findall(text):
            if command in NAMED:
                where_of.setdefault(re.sub(r"\{\w*\}|\b\d+\b", "{}", command + words), []).append(where)
    return where_of


def test_no_message_names_a_command_that_is_not_there() -> None:
    named = {command for _, text in all_messages() for command, _ in STEP.findall(text)}
    assert named - NAMED.keys() == {"manifest", "page", "pipeline", "sink"}, "names of sessions and jobs"


def test_every_step_that_a_message_names_is_in_the_table_with_a_test_that_takes_it() -> None:
    named = steps()
    assert sum(map(len, named.values())) > 200
    assert sorted(named) == sorted(TAKEN_BY)


def split(step: str) -> tuple[str, list[str]]:
    """The command, and the words behind it."""
    first, *words = step.split()
    return (f"{first} {words[0]}", words[1:]) if first in GROUPS else (first, words)


@pytest.mark.parametrize("step", TAKEN_BY)
def test_a_step_is_possible_as_it_is_written(step: str) -> None:
    command, words = split(step)
    given = ["1" if word == "{}" else VALUES.get(word, word) for word in words]
    NAMED[command].load().make_context(command, given)


@pytest.mark.parametrize("step", TAKEN_BY)
def test_a_step_is_taken_by_the_test_that_the_table_names(step: str) -> None:
    path, name = TAKEN_BY[step]
    text = (CHECKOUT / "tests" / path).read_text()
    assert re.search(rf"^def {name}\(", text, re.MULTILINE), f"no test {name}"
    command, words = split(step)
    typed = command.replace(" ", '", "')  # by a test, word by word
    assert re.search(rf"\b(?:{command}|{typed})\b", text), command
    assert [word for word in words if word.startswith("--") and word not in text and word != "--why"] == []
