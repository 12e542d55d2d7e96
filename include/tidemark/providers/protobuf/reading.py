"""Reads values as messages: decides which reader reads which value, and what happens to wrong ones.

The fast reader reads a batch as a whole. If it refuses the batch, the runtime finds the wrong records. Each of these is
tried alone; the others are tried together (in halves, if they are refused too). What the fast reader refuses alone goes
to the runtime. So the result for a record does not depend on the records beside it.
"""

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import Decoded
from tidemark.decoders.batch_parts import joined, leave_out
from tidemark.decoders.list_limit import ListLimit
from tidemark.decoders.one_by_one import Misfit, misfits
from tidemark.model.positions import positions
from tidemark.providers.protobuf.fast import LARGEST, Fast, fast_reader
from tidemark.providers.protobuf.lists import fields_with_lists, list_bytes
from tidemark.providers.protobuf.runtime import Runtime
from tidemark.providers.protobuf.schemas.descriptors import message_descriptor
from tidemark.providers.protobuf.schemas.shapes import message_shape


class Messages:
    """Reads values as one message of a descriptor set: one column per field, in the order of the .proto file."""

    def __init__(self, descriptor_set: bytes, message: str, max_list_bytes: int | None = None) -> None:
        descriptor = message_descriptor(descriptor_set, message)
        shape = message_shape(descriptor)
        self.schema = shape.schema
        self._runtime = Runtime(descriptor, shape)
        self._fast = fast_reader(descriptor_set, message, shape)
        fields, most = fields_with_lists(descriptor, shape), max_list_bytes or 0
        self._lists = ListLimit(self.schema, max_list_bytes, lambda value: list_bytes(value, fields, most))

    def read(self, values: pa.Array) -> Decoded:
        """Decode each value (``binary``, none is null). An empty value is a message in which nothing is set."""
        return self._lists.read(values, self._read)

    def _read(self, values: pa.Array) -> Decoded:
        if self._fast is None:
            return self._runtime.read(values.to_pylist())
        taken, columns = self._fastly(self._fast, values)
        decoded = Decoded(pa.RecordBatch.from_arrays(columns, schema=self.schema), taken, ())
        if len(taken) == len(values):
            return decoded
        others = leave_out(positions(len(values)), taken)
        return joined(self.schema, [decoded, self._runtime.read(values.take(others).to_pylist()).at(others)])

    def _fastly(self, fast: Fast, values: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
        """Return (indices, columns) of the values that the fast reader reads. It gets large values only if they are
        right."""
        large = pc.indices_nonzero(pc.greater(pc.binary_length(values), LARGEST)).to_pylist()
        wrong = [at for at in large if self._runtime.problem_with(values[at].as_py()) is not None]
        taken = leave_out(positions(len(values)), pa.array(wrong, pa.int64()))
        try:
            return taken, fast.columns(values.take(taken))
        except Misfit:
            taken = taken.take(self._accepted(fast, values.take(taken)))
            return taken, fast.columns(values.take(taken))

    def _accepted(self, fast: Fast, values: pa.Array) -> pa.Array:
        """Return the positions of the values that the fast reader reads, after it refused them together."""

        def columns(some: list[int]) -> list[pa.Array]:
            return fast.columns(values.take(pa.array(some, pa.int64())))

        everywhere = positions(len(values))
        wrong = [at for at, value in enumerate(values.to_pylist()) if self._runtime.problem_with(value) is not None]
        readable = leave_out(everywhere, pa.array(wrong, pa.int64())).to_pylist()
        refused = [at for at in wrong if misfits(columns, [at])]
        refused += [readable[at] for at in misfits(columns, readable)]
        return leave_out(everywhere, pa.array(refused, pa.int64()))
