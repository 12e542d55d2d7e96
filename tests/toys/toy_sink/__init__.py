"""A sink that writes JSON lines into one folder."""

from tidemark.sinks.kinds import Kind

_PACKAGE = "tests.toys.toy_sink"
TOY = Kind(f"{_PACKAGE}.settings:Settings", f"{_PACKAGE}.sink:open_sink", f"{_PACKAGE}.writer:ToyWriter")
