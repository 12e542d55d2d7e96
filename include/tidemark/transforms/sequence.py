"""The transforms of an order, one after the other, and the columns of their result."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final

import pyarrow as pa

from tidemark.decoders.base import REASON_LIMIT, BadRecord
from tidemark.decoders.registry import open_decoder, tombstone_fields
from tidemark.errors import ConfigurationError
from tidemark.model.order import TransformOrder
from tidemark.transforms.base import Memory, OnFrames, Remembering, Transform
from tidemark.transforms.registry import open_transform

_OF_TOMBSTONES: Final = {b"tombstone": b"true"}  # marks a field on its way through the transforms


class Transforms:
    """All transforms of a task, opened once; their state belongs to the task."""

    def __init__(self, orders: Sequence[TransformOrder], given: pa.Schema) -> None:
        """Raises ``WrongTransform`` for the first transform that cannot work on the columns it gets."""
        self.steps: list[TransformStep] = []
        self.schema = given
        for position, order in enumerate(orders):
            try:
                transform = open_transform(order)
                self.schema = transform.schema(self.schema)
                self._check_alone(transform, orders)
                self._check_order(transform, order)
            except ConfigurationError as wrong:
                raise WrongTransform(position, order.kind, wrong) from wrong
            self.steps.append(TransformStep(f"transform[{position}].{order.kind}", transform, order.fans_out))

    @property
    def on_frames(self) -> OnFrames | None:
        """Return the transform that Spark calls before the pass, if there is one."""
        return next((step.transform for step in self.steps if isinstance(step.transform, OnFrames)), None)

    @property
    def before_frames(self) -> Sequence["TransformStep"]:
        """Return the steps before the one on DataFrames, whose rows have passed through them."""
        return list(takewhile(lambda step: step.transform is not self.on_frames, self.steps))

    @property
    def memory(self) -> Memory | None:
        """Return which rows ``remember`` must get before the first row goes through the steps; None for no rows."""
        return next((step.memory for step in self.steps if step.memory), None)

    @property
    def remembering(self) -> Sequence["TransformStep"]:
        """Return the steps up to and including the one that remembers."""
        [last] = [at for at, step in enumerate(self.steps) if step.memory]
        return self.steps[: last + 1]

    def _check_order(self, transform: Transform, order: TransformOrder) -> None:
        """Raise ``ConfigurationError`` for a transform that cannot follow those before it."""
        fanned_out = any(step.fans_out for step in self.steps)
        if order.fans_out and fanned_out:
            raise ConfigurationError(
                "there can be only one explode", next_step="join the arrays before it: select: [flatten(..)]"
            )
        if isinstance(transform, OnFrames) and fanned_out:
            raise ConfigurationError(
                f"{order.kind} must stand before explode, which may make several rows of one record",
                next_step=f"write {order.kind} before explode",
            )
        if self.on_frames is None:
            return
        if isinstance(transform, OnFrames):
            raise ConfigurationError(f"there can be only one {order.kind}", next_step="let one function call the other")
        if order.whole_partitions:
            raise ConfigurationError(
                "it must get the rows before spark changes them", next_step="write it before spark"
            )

    @staticmethod
    def _check_alone(transform: Transform, orders: Sequence[TransformOrder]) -> None:
        """Raise if there is a second dedupe beside one with a memory: it would remove rows that the first one must
        know, or must forget.
        """
        remembers = isinstance(transform, Remembering) and transform.memory is not None
        if remembers and sum(order.whole_partitions for order in orders) > 1:
            raise ConfigurationError(
                "with keep: last or within it must be the only dedupe", next_step="leave one of them out"
            )


@dataclass(frozen=True)
class TransformStep:
    """One transform; ``key`` is its place in the pipeline file."""

    key: str
    transform: Transform
    fans_out: bool

    @property
    def memory(self) -> Memory | None:
        return self.transform.memory if isinstance(self.transform, Remembering) else None

    def remember(self, rows: pa.RecordBatch) -> None:
        assert isinstance(self.transform, Remembering), "it has a memory"
        self.transform.remember(rows)

    def reason(self, error: BadRecord) -> str:
        return f"{self.key}: {error.reason}"[:REASON_LIMIT]


class WrongTransform(ConfigurationError):
    """The transform at ``position`` cannot work on the columns that it gets."""

    def __init__(self, position: int, kind: str, wrong: ConfigurationError) -> None:
        super().__init__(f"transform[{position}].{kind}: {wrong.what}", next_step=wrong.next_step)
        self.position, self.kind, self.wrong = position, kind, wrong


@dataclass(frozen=True)
class Columns:
    """The data columns that sinks get; ``of_tombstones`` are those in the row of a tombstone.

    ``fans_out``: a record may have several rows.
    """

    schema: pa.Schema
    of_tombstones: tuple[str, ...]
    fans_out: bool


def columns_after(decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> Columns:
    """Return the columns after decoder and transforms of an order. Raises ``ConfigurationError`` if one of them is
    wrong.
    """
    return _columns(json.dumps(decode, sort_keys=True), json.dumps([asdict(order) for order in transforms]))


@lru_cache(maxsize=100)  # a pipeline file is checked against them several times
def _columns(decode: str, transforms: str) -> Columns:
    config = json.loads(decode)
    given = open_decoder(config).schema
    names = tombstone_fields(config)
    marked = pa.schema([field.with_metadata(_OF_TOMBSTONES) if field.name in names else field for field in given])
    orders = [TransformOrder(**order) for order in json.loads(transforms)]
    made = Transforms(orders, marked).schema
    fans_out = [position for position, order in enumerate(orders) if order.fans_out]
    if names and fans_out:
        wrong = ConfigurationError(
            "decode.tombstones cannot be used with explode: a tombstone does not say how many rows its key had",
            next_step="remove decode.tombstones, or remove this transform",
        )
        raise WrongTransform(fans_out[0], orders[fans_out[0]].kind, wrong)
    of_tombstones = tuple(field.name for field in made if field.metadata == _OF_TOMBSTONES)
    return Columns(pa.schema([field.remove_metadata() for field in made]), of_tombstones, bool(fans_out))
