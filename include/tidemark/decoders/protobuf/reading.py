"""Values as messages: which reader reads which, and what happens to those that are wrong.

The fast reader takes a batch as a whole. When it refuses it, the runtime names the records that are wrong. Each of them
is tried alone, the others together (in halves, when they are refused too), and what the fast reader refuses alone goes
to the runtime. So the result for a record does not depend on the records beside it.
"""

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import REASON_LIMIT, BadRecord, Decoded
from tidemark.decoders.lists.list_limit import ListLimit
from tidemark.decoders.protobuf.fast import LARGEST, Fast, FastReadFailed, fast_reader
from tidemark.decoders.protobuf.lists import fields_with_lists, list_bytes
from tidemark.decoders.protobuf.runtime import Runtime
from tidemark.decoders.protobuf_schema.descriptors import message_descriptor
from tidemark.decoders.protobuf_schema.shapes import message_shape


class Messages:
    """Reads values as one message of a descriptor set: one column per field, in the order of the .proto file."""

    def __init__(self, descriptor_set: bytes, message: str, max_list_bytes: int | None = None) -> None:
        descriptor = message_descriptor(descriptor_set, message)
        shape = message_shape(descriptor)
        self.schema = pa.schema([field.arrow for field in shape.fields])
        self._runtime = Runtime(descriptor, shape)
        self._fast = fast_reader(descriptor, shape)
        fields, most = fields_with_lists(descriptor, shape), max_list_bytes or 0
        self._lists = ListLimit(self.schema, max_list_bytes, lambda value: list_bytes(value, fields, most))

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode values that have no frame."""
        return self.read(batch.column("value").cast(pa.binary()))

    def read(self, values: pa.Array) -> Decoded:
        """Decode each value (``binary``); an empty one is a message with nothing set, a null is an error."""
        return self._lists.read(values, self._read)

    def _read(self, values: pa.Array) -> Decoded:
        valid = pc.is_valid(values)
        here = pc.indices_nonzero(valid).cast(pa.int64())
        nulls = pc.indices_nonzero(pc.invert(valid)).to_pylist()
        errors = [BadRecord(index, "no value (a tombstone)") for index in nulls]
        taken, columns = self._fastly(values, here, errors)
        slow = here.filter(pc.invert(pc.is_in(here, taken))) if len(taken) < len(here) else here.slice(0, 0)
        slow = slow.filter(pc.invert(pc.is_in(slow, pa.array([bad.index for bad in errors], pa.int64()))))
        if len(slow):
            read, good, bad = self._runtime.read(values.take(slow).to_pylist())
            errors += [BadRecord(slow[position].as_py(), reason[:REASON_LIMIT]) for position, reason in bad]
            taken = pa.concat_arrays([taken, slow.take(pa.array(good, pa.int64()))])
            order = pc.sort_indices(taken)
            taken = taken.take(order)
            columns = [pa.concat_arrays(pair).take(order) for pair in zip(columns, read, strict=True)]
        return Decoded(pa.RecordBatch.from_arrays(columns, schema=self.schema), taken, tuple(sorted(errors)))

    def _fastly(self, values: pa.Array, here: pa.Array, errors: list[BadRecord]) -> tuple[pa.Array, list[pa.Array]]:
        """(indices, columns) of the values that the fast reader takes; ``errors`` gets large values that are bad."""
        if self._fast is None:
            return here.slice(0, 0), [pa.array([], field.type) for field in self.schema]
        large = pc.greater(pc.fill_null(pc.binary_length(values), 0), LARGEST)
        if pc.any(large).as_py():
            reasons = (
                (at, self._runtime.problem_with(values[at].as_py())) for at in pc.indices_nonzero(large).to_pylist()
            )
            errors += [BadRecord(index, reason[:REASON_LIMIT]) for index, reason in reasons if reason is not None]
            wrong = pa.array([bad.index for bad in errors], pa.int64())
            here = here.filter(pc.invert(pc.is_in(here, wrong)))
        try:
            return here, self._fast.columns(values.take(here))
        except FastReadFailed:
            here = here.take(pa.array(self._accepted(self._fast, values.take(here)), pa.int64()))
            return here, self._fast.columns(values.take(here))

    def _accepted(self, fast: Fast, values: pa.Array) -> list[int]:
        """The positions of the values that the fast reader takes, when it refuses them together."""
        readable: list[int] = []
        accepted: list[int] = []
        for position, value in enumerate(values.to_pylist()):
            if self._runtime.problem_with(value) is not None:
                accepted += _taken(fast, values, [position])
            else:
                readable.append(position)
        return sorted([*accepted, *_taken(fast, values, readable)])


def _taken(fast: Fast, values: pa.Array, positions: list[int]) -> list[int]:
    """Those of the positions whose values the fast reader takes."""
    try:
        fast.columns(values.take(pa.array(positions, pa.int64())))
    except FastReadFailed:
        middle = len(positions) // 2
        halves = (positions[:middle], positions[middle:]) if middle else ()
        return [position for half in halves for position in _taken(fast, values, half)]
    return positions
