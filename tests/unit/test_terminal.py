"""Text of records on a terminal: nothing in it is obeyed, and JSON stays JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unicodedata import bidirectional, category

import pytest
from rich.text import Text

from tidemark.cli.terminal import Table, echo, json_text, open_console, printable

TURNS = ("LRE", "LRO", "RLE", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI", "B")


def test_each_character_that_a_terminal_obeys_is_written_with_its_code() -> None:
    obeyed = [
        character
        for character in map(chr, range(0x110000))
        if (category(character) == "Cc" or bidirectional(character) in TURNS) and character not in "\t\n"
    ]
    assert len(obeyed) > 60
    for character in obeyed:
        assert printable(f"a{character}[31mb") == f"a{ascii(character)[1:-1]}[31mb"
        assert json.loads(json_text({"x": character})) == {"x": character}
        assert character not in json_text({"x": character})


def test_what_people_read_stays_as_it_is() -> None:
    text = "Zürich\t大阪 👩‍🚀 \n שלום 100 €"
    assert printable(text) == text


def test_lines_and_cells_of_tables_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;title\x07\x9b2J\u202e"
    echo(evil)
    open_console().print(evil, markup=False)
    table = Table("column")
    table.add_row(evil)
    table.add_row(Text(printable(evil)))
    open_console().print(table)
    out = capsys.readouterr().out
    assert out.count(r"\x1b]0;title\x07\x9b2J\u202e") == 4, out
    assert not set(out) & set("\x1b\x07\x9b\u202e")


FULL = Path("/dev/full")  # takes nothing: no space left


HELP = [["--help"], ["--version"], ["db", "--help"], ["run", "--help"], ["accept", "loss", "-h"]]


@pytest.mark.thorough
@pytest.mark.parametrize("words", [["print", "schema"], ["print", "completion", "bash"], *HELP])
def test_an_answer_that_standard_output_does_not_take_is_an_error_and_no_traceback(words: list[str]) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tidemark.cli", *words], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: standard output cannot be written: No space left on device ")
    assert "\nnext:  free space where it goes, or send it elsewhere" in done.stderr
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.thorough
@pytest.mark.parametrize("words", [["print", "schema"], *HELP])
def test_an_answer_that_nobody_reads_ends_the_command_without_a_traceback(words: list[str]) -> None:
    reader, answer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "tidemark.cli", *words], stdout=answer, stderr=subprocess.PIPE, text=True
    )
    os.close(answer)
    assert (done.returncode, done.stderr) == (1, "")


LOG = """
import sys
from tidemark.cli import log, terminal
from tidemark.cli.log_format import LogFormat, choose_format
from tidemark.errors import WorkFailed
choose_format(LogFormat(sys.argv[1]))
for number in range(300):
    log.note(f"manifest {number}: {'x' * 100}")
    log.error(WorkFailed("it failed", next_step="tidemark status"))
terminal.forget_unwritten()
print("the work went on")
"""


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["a full disk", "a pipe that nobody reads"])
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_log_that_nobody_takes_is_lost_and_the_work_goes_on(where: str, log_format: str) -> None:
    if where == "a full disk":
        log = os.open(FULL, os.O_WRONLY)
    else:
        reader, log = os.pipe()
        os.close(reader)
    done = subprocess.run([sys.executable, "-c", LOG, log_format], stdout=subprocess.PIPE, stderr=log, text=True)
    os.close(log)
    assert (done.returncode, done.stdout) == (0, "the work went on\n")
