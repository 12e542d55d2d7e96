"""The command line itself: its list of commands, what it imports, and options that stand anywhere."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tests.unit.pipeline_text import GOOD
from tidemark.cli.main import COMMANDS, GROUPS, NAMED, main

SLOW = {
    "airflow",
    "boto3",
    "confluent_kafka",
    "cryptography",
    "psycopg",
    "pyarrow",
    "pydantic",
    "pyspark",
    "rich",
    "yaml",
}


def called(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def usage(*words: str) -> str:
    return CliRunner().invoke(main, [*words, "--help"], prog_name="tidemark").stdout


def imported_by(*words: str) -> set[str]:
    """The packages that a process has imported when the command line has answered."""
    program = (
        "import sys\nfrom tidemark.cli.main import main\n"
        f"main({list(words)!r}, standalone_mode=False)\n"
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("words", [("--help",), ("--version",)])
def test_help_imports_no_library_that_only_a_command_needs(words: tuple[str, ...]) -> None:
    assert imported_by(*words) & SLOW == set()


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["plan", "run", "status", "validate"])
def test_no_command_imports_pandas_before_it_works_on_rows(name: str) -> None:
    assert "pandas" not in imported_by(name, "--help"), "pyarrow imports it when it makes an array of a list"


@pytest.mark.thorough
def test_no_command_imports_pandas_to_read_a_pipeline_file(tmp_path: Path) -> None:
    (tmp_path / "demo.yaml").write_text(
        "pipeline: demo\n"
        "source: {kafka: {bootstrap_servers: 'localhost:9', topics: [demo]}}\n"
        "decode: {format: json, schema: id BIGINT NOT NULL}\n"
        "event_time: {source: timestamp}\n"
        "sinks: [{files: {root: lake}}]\n"
    )
    assert "pandas" not in imported_by("validate", "--pipelines", str(tmp_path))


@pytest.mark.parametrize(("words", "status"), [("--version", 0), ("nonsense", 2)])
@pytest.mark.parametrize("daemon", [True, False])
def test_the_process_ends_at_once_with_its_status_unless_a_thread_is_at_work(
    words: str, status: int, *, daemon: bool
) -> None:
    program = (
        "import atexit, os, threading\n"
        "from tidemark.cli.__main__ import run\n"
        "class Freed:\n"
        "    def __del__(self, write=os.write): write(1, b'freed\\n')\n"
        "atexit.register(print, 'registered')\n"
        "kept = Freed()\n"
        "last = lambda: (threading.main_thread().join(), print('thread', flush=True))\n"
        f"threading.Thread(target=last, daemon={daemon}).start()\n"
        "run()"
    )
    done = subprocess.run([sys.executable, "-c", program, words], capture_output=True, text=True)
    assert done.returncode == status
    printed = [line for line in done.stdout.splitlines() if line in {"registered", "thread", "freed"}]
    assert sorted(printed) == (["registered"] if daemon else ["freed", "registered", "thread"])
    assert done.stderr.count("nonsense") == (status > 0)


def test_a_process_whose_output_cannot_be_written_does_not_end_well() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "tidemark.cli", "--help"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode != 0


def test_completing_the_name_of_a_command_imports_no_command() -> None:
    program = (
        "import atexit, sys\natexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from tidemark.cli.main import main\nmain(prog_name='tidemark')"
    )
    asking = {"_TIDEMARK_COMPLETE": "bash_complete", "COMP_WORDS": "tidemark re", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **asking}, capture_output=True, text=True, check=True
    )
    assert [line.partition(",")[2] for line in done.stdout.split()] == [
        "retry",
        "replay",
        "rename",
        "retire",
        "repair",
    ]
    assert {name.partition(".")[0] for name in done.stderr.split()} & SLOW == set()


@pytest.mark.parametrize("words", NAMED)
def test_the_list_of_commands_says_of_each_what_its_own_help_says_first(words: str) -> None:
    listed, own = NAMED[words], NAMED[words].load()
    assert isinstance(own, click.Command)
    assert own.name == words
    assert own.help is not None
    assert own.help.partition("\n\n")[0] == listed.short_help


def test_every_command_of_a_module_is_in_the_list() -> None:
    for module in {named.module for named in NAMED.values()}:
        listed = [words for words, named in NAMED.items() if named.module == module]
        NAMED[listed[0]].load()
        assert sorted(sys.modules[f"tidemark.cli.{module}"].commands.commands) == sorted(listed)


def test_each_command_is_in_one_section_on_one_line_of_80_columns_and_a_group_names_what_it_has() -> None:
    text = CliRunner().invoke(main, ["--help"], terminal_width=80).stdout
    sections = re.findall(r"^([A-Z][^:\n]*):\n((?:  .*\n)+)", text, re.MULTILINE)
    assert [title for title, _ in sections] == ["Options", *COMMANDS]
    lines = [line for title, block in sections if title in COMMANDS for line in block.splitlines()]
    assert [line.split()[0] for line in lines] == list(main.commands)
    for group, about in GROUPS.items():
        within = main.commands[group]
        assert isinstance(within, click.Group)
        assert about.partition(": ")[2] == ", ".join(within.commands) + "."


@pytest.mark.parametrize("group", GROUPS)
def test_the_help_of_a_group_has_a_line_for_each_of_its_commands(group: str) -> None:
    text = CliRunner().invoke(main, [group, "--help"], terminal_width=80).stdout
    listed = text.partition("Commands:\n")[2].splitlines()
    assert [f"{group} {line.split()[0]}" for line in listed] == [
        words for words in NAMED if words.startswith(f"{group} ")
    ]
    assert f"tidemark {group} {listed[0].split()[0]} [OPTIONS]" in usage(group, listed[0].split()[0])
    assert called(group).exit_code == 2


@pytest.mark.parametrize("width", [80, 120])
def test_each_variable_of_the_help_begins_a_line_of_its_own(width: int) -> None:
    text = CliRunner().invoke(main, ["--help"], terminal_width=width, max_content_width=width).stdout
    beginnings = [line.split()[0] for line in text.splitlines() if line.split()]
    for variable in ("DB", "PIPELINES", "HOME", "SPARK_JARS", "SPARK_MASTER", "CONNECTIONS"):
        assert f"TIDEMARK_{variable}" in beginnings
    assert "PYSPARK_PYTHON" in beginnings
    assert max(len(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize(
    "words",
    [
        ("--pipelines", "FOLDER", "validate"),
        ("validate", "--pipelines", "FOLDER"),
        ("validate", "--pipelines=FOLDER"),
        ("--pipelines", "/nowhere", "validate", "--pipelines", "FOLDER", "--json"),
    ],
)
def test_the_folder_of_pipelines_may_stand_anywhere(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "p.yaml").write_text(GOOD)
    done = called(*(word.replace("FOLDER", str(tmp_path)) for word in words))
    assert done.exit_code == 0, done.stderr
    assert "p.yaml" in done.stdout


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("", ("--log-format", "json", "plan", "demo")),
        ("", ("plan", "demo", "--log-format", "json")),
        ("json", ("plan", "demo")),
        ("text", ("--log-format", "json", "plan", "demo")),
        ("", ("--log-format", "text", "plan", "demo", "--log-format", "json")),
        ("text", ("plan", "demo", "--log-format", "json")),
    ],
)
def test_the_log_is_one_json_object_per_line_where_an_option_or_the_variable_says_so(
    tmp_path: Path, variable: str, words: tuple[str, ...]
) -> None:
    variables = {"TIDEMARK_LOG_FORMAT": variable} if variable else {}
    done = CliRunner().invoke(main, ["--pipelines", str(tmp_path), *words], env=variables)
    assert done.exit_code == 2
    [line] = map(json.loads, done.stderr.splitlines())
    assert (line["event"], line["level"], line["error"]) == ("tidemark_failed", "error", "not-found")
    assert line["what"].startswith("there is no pipeline demo in")


def test_the_log_is_for_people_unless_somebody_says_json(tmp_path: Path) -> None:
    called("--pipelines", str(tmp_path), "plan", "demo", "--log-format", "json")
    assert called("--pipelines", str(tmp_path), "plan", "demo").stderr.startswith("error: ")
    wrong = CliRunner().invoke(main, ["validate"], env={"TIDEMARK_LOG_FORMAT": "xml"})
    assert wrong.exit_code == 2
    assert "'xml' is not one of 'text', 'json'" in wrong.stderr


@pytest.mark.parametrize(("log_format", "line"), [("text", "a warning of 7"), ("json", "tidemark_note")])
def test_a_warning_of_a_library_has_the_form_of_the_log(log_format: str, line: str) -> None:
    program = (
        "import logging, sys\nfrom tidemark.cli import log\n"
        "from tidemark.cli.log_format import LogFormat, choose_format\n"
        "choose_format(LogFormat(sys.argv[1]))\nlog.show_warnings()\n"
        "logging.getLogger('library').info('not this')\nlogging.getLogger('library').warning('a warning of %s', 7)"
    )
    done = subprocess.run([sys.executable, "-c", program, log_format], capture_output=True, text=True, check=True)
    [written] = done.stderr.splitlines()
    assert written == line if log_format == "text" else json.loads(written)["message"] == "a warning of 7"
    assert log_format == "text" or json.loads(written)["event"] == line


def test_a_word_behind_two_dashes_is_no_option(tmp_path: Path) -> None:
    refused = called("--pipelines", str(tmp_path), "validate", "--", "--pipelines")
    assert f"there is no pipeline --pipelines in {tmp_path}" in refused.stderr


@pytest.mark.parametrize(
    "words", [("--manifest", "3", "--manifest=4"), ("--manifest", "3", "--json", "--manifest", "3")]
)
def test_an_option_that_is_given_twice_is_refused_and_named(words: tuple[str, ...]) -> None:
    done = called("retry", "demo", *words)
    assert done.exit_code == 2
    assert "Error: --manifest is given 2 times, and takes one value" in done.stderr
    assert "is given" not in called("validate", "--json", "--json").stderr


def test_an_unknown_command_is_wrong_use_and_names_the_nearest() -> None:
    done = called("rum", "demo")
    assert done.exit_code == 2
    assert "No such command 'rum'. Did you mean 'run'?" in done.stderr
    assert "No such command 'los'. Did you mean 'loss'?" in called("accept", "los", "demo").stderr


@pytest.mark.parametrize(
    ("typed", "words"), [("migrate", "db migrate"), ("accept-loss", "accept loss"), ("spark-server", "spark serve")]
)
def test_a_command_without_its_group_is_unknown_and_led_to_it(typed: str, words: str) -> None:
    done = called(typed, "demo")
    assert (done.exit_code, f"'{words}'" in done.stderr) == (2, True), done.stderr


def test_an_error_of_ours_is_two_lines_and_no_traceback(tmp_path: Path) -> None:
    done = called("--pipelines", str(tmp_path), "plan", "demo")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: there is no pipeline demo in")
    assert "\nnext:  name one of them" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_word_that_is_no_text_is_wrong_use() -> None:
    refused = called("accept", "loss", "demo", "--why", "sch\udcf6n")
    assert refused.exit_code == 2
    assert "word 5 is not text in UTF-8: 'sch\\udcf6n'" in refused.stderr


def test_a_current_folder_that_was_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removed = tmp_path / "removed"
    removed.mkdir()
    monkeypatch.chdir(removed)
    removed.rmdir()
    refused = CliRunner().invoke(main, ["status"])
    assert refused.exit_code == 2
    assert "the current folder was removed" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_schema_is_json_with_and_without_the_option() -> None:
    assert json.loads(called("print", "schema").stdout) == json.loads(called("print", "schema", "--json").stdout)
