"""Writes to a terminal. Text from records, files and servers stays text there, and never moves the cursor.

Everything that a command prints goes through ``echo``, ``Console`` or ``Table`` of this module. If standard error
cannot be written, because its disk is full or its reader has ended, the text is lost and the work goes on.
"""

import errno
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click
from rich import console, table
from rich.console import RenderableType
from rich.text import Text

from tidemark.errors import WorkFailed
from tidemark.model.json_values import json_value

# Control characters except tab and line feed, and characters that change the direction of the text after them.
_MOVES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Replace each character that a terminal would obey with its Python escape, such as ``\\x1b`` for ESC."""
    return _MOVES.sub(lambda character: ascii(character[0])[1:-1], text)


def json_text(value: object, indent: int | None = None) -> str:
    """Return a value as JSON in ASCII, which every terminal and pipe takes. ``json`` itself does not escape DEL."""
    return json.dumps(value, indent=indent, default=json_value).replace("\x7f", "\\u007f")


def echo(text: object, *, err: bool = False, nl: bool = True) -> None:
    with _written(err):
        click.echo(printable(str(text)), err=err, nl=nl)


@contextmanager
def _written(err: bool) -> Iterator[None]:
    """Raise ``WorkFailed`` if standard output cannot be written. click itself ends a command whose pipe was closed."""
    try:
        yield
    except OSError as error:
        if not err and error.errno == errno.EPIPE:
            raise
        if not err:
            raise not_written(error) from error


def not_written(error: OSError) -> WorkFailed:
    return WorkFailed(
        f"standard output cannot be written: {error.strerror}",
        next_step="free space where it goes, or send it elsewhere; what the command did stays done: tidemark status "
        "says what is left",
    )


def forget_unwritten() -> None:
    """Drop what a stream did not take, at the end of a command: otherwise Python would fail while it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            with suppress(OSError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)


class Console(console.Console):
    """Prints text, also inside rich's markup, without any character that a terminal obeys."""

    def print(self, *objects: Any, **options: Any) -> None:
        with _written(self.stderr):
            super().print(*map(_printed, objects), **options)

    def on_broken_pipe(self) -> None:
        """Go on if nobody reads standard error: rich would end the process in the middle of its work."""
        if not self.stderr:
            super().on_broken_pipe()


class Table(table.Table):
    """A table that makes control characters in its cells visible, as ``Console`` does, before rich measures its
    columns.
    """

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*map(_printed, cells), **options)


def _printed(shown: Any) -> Any:
    if isinstance(shown, Text):
        shown.plain = printable(shown.plain)
        return shown
    return printable(shown) if isinstance(shown, str) else shown


def open_console(stderr: bool = False) -> Console:
    """Return a console with colour only on a terminal, and elsewhere wide enough that no cell is cut."""
    opened = Console(stderr=stderr, highlight=False, soft_wrap=True)
    if not opened.is_terminal:
        opened.width = 200
    return opened
