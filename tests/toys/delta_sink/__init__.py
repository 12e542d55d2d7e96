"""A sink with a Delta table of all rows, by the package deltalake: its application transactions are the ledger."""

from tidemark.sinks.kinds import Kind

_PACKAGE = "tests.toys.delta_sink"
DELTA = Kind(f"{_PACKAGE}.settings:Settings", f"{_PACKAGE}.sink:open_sink", f"{_PACKAGE}.writer:DeltaWriter")
