"""The seam for copies of totals: another place where readers find them, such as a table of DynamoDB.

``totals`` knows a copy only by these classes. A kind of copy is a package with two modules: ``settings`` has
``Settings``, and ``copy`` has ``open_copy(settings, lookup, context)``, which returns a ``CopyOfTotals``.

PostgreSQL adds up, and gives each changed total a higher *revision*. For each key a copy keeps the total with the
highest revision. So the same totals may be put twice, late, or by two processes at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import SerializeAsAny

from tidemark.config.base import OneKind, Section
from tidemark.connections.lookup import Lookup
from tidemark.kinds import COPIES
from tidemark.providers.postgres.aggregates.value_columns import ValueColumn


class CopySettings(Section):
    """The settings of one copy. ``kind`` is its name in the registry.

    ``longest_key`` is the most bytes of a key, as the text of a JSON array; None if keys of any length fit.
    """

    kind: ClassVar[str]
    longest_key: ClassVar[int | None] = None

    @property
    @abstractmethod
    def place(self) -> str:
        """The place of the copy, for messages. It contains no secrets."""

    @abstractmethod
    def connections(self) -> set[str]:
        """Return the ids of the Airflow connections that these settings name."""

    @abstractmethod
    def problem_with(self, columns: Sequence[ValueColumn], types: Mapping[str, str]) -> str | None:
        """Return why this copy cannot hold these value columns, as a sentence that continues a key; None if it can."""


CopyEntry = Annotated[SerializeAsAny[CopySettings] | None, OneKind(COPIES)]


@dataclass(frozen=True)
class Total:
    """One total as PostgreSQL has it; with 0 ``rows`` no record contributes to it any longer."""

    key: Mapping[str, Any]
    values: Mapping[str, Any]
    rows: int
    revision: int


@dataclass(frozen=True)
class Comparison:
    """The difference between a copy and all totals. Keys are the texts of ``CopyOfTotals.key_of``.

    ``differing`` are keys of totals for which the copy has something else, or nothing. ``strays`` are keys with records
    that only the copy has.
    """

    highest_revision: int
    differing: frozenset[str]
    strays: frozenset[str]


class CopyOfTotals(ABC):
    """One place with a copy of the totals of one table.

    ``longest_key``, ``longest_total`` (bytes) and ``most_digits`` are rough limits: totals near them are checked with
    ``problem_with`` before they are committed.
    """

    longest_key: ClassVar[int]
    longest_total: ClassVar[int]
    most_digits: ClassVar[int]

    def __init__(self, place: str) -> None:
        self.place = place

    @abstractmethod
    def check(self) -> None:
        """Raise ``SinkRefused`` unless the place is free, or has a copy already. Changes nothing."""

    @abstractmethod
    def claim(self, owner: str) -> None:
        """Create the place if the settings say so, and note that it belongs to ``owner``, an id of the totals.

        May be repeated, even by two processes at once. Raises ``SinkRefused`` if it belongs to other totals.
        """

    @abstractmethod
    def identity(self) -> str | None:
        """Return an id that changes when the place is restored or created again; None while it does not exist."""

    @abstractmethod
    def rehearse(self) -> str:
        """Try what an attempt needs, and change nothing; return a sentence about it. Raises for what you must
        correct."""

    @abstractmethod
    def problem_with(self, total: Total) -> str | None:
        """Return why the copy has no room for a total, as a sentence; None if it has room."""

    @abstractmethod
    def key_of(self, total: Total) -> str:
        """Return the text that names the key of a total in the copy."""

    @abstractmethod
    def put(self, totals: Sequence[Total]) -> None:
        """Put each total, unless the copy has one with the same or a higher revision."""

    @abstractmethod
    def empty(self, keys: Iterable[str], revision: int) -> None:
        """Remove the records of keys without a total from the copy, with the same rule for revisions as ``put``."""

    @abstractmethod
    def differing(self, totals: Sequence[Total]) -> list[Total]:
        """Return those totals for which the copy has something else, in whatever revision."""

    @abstractmethod
    def compare(self, totals: Iterable[Total]) -> Comparison:
        """Read the whole copy, and compare it with all totals."""


def open_copy(settings: CopySettings, lookup: Lookup, context: Mapping[str, Any]) -> CopyOfTotals:
    """Open the copy that the settings name; ``context`` is added to its errors."""
    copy: CopyOfTotals = COPIES.module(settings.kind, "copy").open_copy(settings, lookup, context)
    return copy
