"""Dead letters, and what a replay brought back of them."""

from dataclasses import dataclass
from datetime import datetime

from tidemark.operations.bring_back import BroughtBack
from tidemark.operations.dead_letters import Kept, Letters, Place

SHOWN_BYTES = 4_096  # of a key, a value and the value of a header of a dead letter


@dataclass(frozen=True)
class LetterPlaceView:
    """Where a dead letter was read; ``timestamp`` is that of the record in the source."""

    manifest_id: int
    topic: str
    partition: int
    offset: int
    timestamp: datetime | None


@dataclass(frozen=True)
class LetterGroupView:
    """Dead letters of one class and reason, with ``N`` and ``..`` for what varies; first and last by timestamp."""

    error_class: str
    reason: str
    count: int
    first: LetterPlaceView
    last: LetterPlaceView
    schemas: tuple[str, ...]


@dataclass(frozen=True)
class DeadLetterView:
    """One dead letter, published by this attempt; in JSON key, value and values of headers are base64.

    Each of them is cut after 4,096 bytes; ``value_bytes`` is the whole length of the value, None without a value.
    """

    manifest_id: int
    attempt: int
    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    error_class: str
    reason: str
    schemas: str | None
    key: bytes | None
    value: bytes | None
    value_bytes: int | None
    headers: tuple[tuple[str, bytes | None], ...] | None


@dataclass(frozen=True)
class DeadLettersView:
    """The published dead letters of a pipeline: ``count`` in these ``manifests``, in groups, the most frequent first.

    ``records`` are the first of them, as many as were asked for.
    """

    count: int
    manifests: tuple[int, ...]
    groups: tuple[LetterGroupView, ...]
    records: tuple[DeadLetterView, ...]


@dataclass(frozen=True)
class ReturnedView:
    """A manifest that was replayed: its dead letters before, and those that remain; None in a dry run."""

    manifest_id: int
    before: int
    brought_back: int | None
    remain: int | None


@dataclass(frozen=True)
class NotReplayedView:
    """A manifest that cannot be replayed, and why."""

    manifest_id: int
    what: str
    next_step: str


@dataclass(frozen=True)
class BroughtBackView:
    """The dead letters that a replay brought back, by manifest, oldest first.

    ``left`` were not tried, since the source or a sink did not answer.
    """

    dry_run: bool
    returned: tuple[ReturnedView, ...]
    failed: tuple[NotReplayedView, ...]
    left: tuple[int, ...]


def dead_letters_view(letters: Letters) -> DeadLettersView:
    groups = (
        LetterGroupView(
            group.error_class, group.reason, group.count, _letter_place(group.first), _letter_place(group.last),
            tuple(group.schemas),
        )
        for group in letters.groups
    )  # fmt: skip
    records = map(_dead_letter_view, letters.records)
    return DeadLettersView(letters.count, tuple(letters.manifests), tuple(groups), tuple(records))


def _letter_place(place: Place) -> LetterPlaceView:
    return LetterPlaceView(**vars(place))


def _dead_letter_view(kept: Kept) -> DeadLetterView:
    letter = kept.letter
    headers = letter.headers and tuple((name, value and value[:SHOWN_BYTES]) for name, value in letter.headers)
    shown = {
        "key": letter.key and letter.key[:SHOWN_BYTES],
        "value": letter.value and letter.value[:SHOWN_BYTES],
        "value_bytes": None if letter.value is None else len(letter.value),
        "headers": headers,
    }
    return DeadLetterView(kept.manifest_id, kept.attempt, **{**vars(letter), **shown})


def brought_back_view(result: BroughtBack) -> BroughtBackView:
    returned = tuple(
        ReturnedView(part.manifest_id, part.before, part.brought_back, part.after) for part in result.returned
    )
    failed = tuple(NotReplayedView(id_, error.what, error.next_step) for id_, error in result.failed.items())
    return BroughtBackView(result.dry_run, returned, failed, tuple(result.left))
