"""Text of records on a terminal: nothing in it is obeyed, and JSON stays JSON."""

import json
from unicodedata import bidirectional, category

import pytest
from rich.text import Text

from tidemark.cli.terminal import Table, echo, json_text, open_console, printable

TURNS = ("LRE", "LRO", "RLE", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI", "B")
OBEYED = [
    character
    for character in map(chr, range(0x110000))
    if (category(character) == "Cc" or bidirectional(character) in TURNS) and character not in "\t\n"
]


@pytest.mark.parametrize("character", OBEYED, ids=ascii)
def test_a_character_that_a_terminal_obeys_is_written_with_its_code(character: str) -> None:
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
