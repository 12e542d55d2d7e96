"""The partitions of a table as a pipeline file writes them: ``day(_event_time)``, ``bucket(16, carrier)``, ``carrier``.

Imports only the standard library, because pipeline files are checked without the library of Iceberg.
"""

import re
from dataclasses import dataclass
from typing import Final

TIMES: Final = ("year", "month", "day", "hour")
AVRO_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TERM: Final = re.compile(
    r"(?:(?P<time>year|month|day|hour)\(\s*(?P<of_time>\w+)\s*\)"
    r"|(?P<sized>bucket|truncate)\(\s*(?P<size>[1-9][0-9]{0,5})\s*,\s*(?P<of_sized>\w+)\s*\)|(?P<column>\w+))"
)


@dataclass(frozen=True)
class Term:
    """A column and the transform that makes partitions of its values; ``transform`` has Iceberg's form:
    ``bucket[16]``."""

    column: str
    transform: str

    @classmethod
    def parse(cls, text: str) -> "Term | None":
        """Return the parsed term; None if the text is neither a column nor a transform of a column."""
        match = _TERM.fullmatch(text.strip())
        if match is None:
            return None
        if match["time"]:
            return cls(match["of_time"], match["time"])
        if match["sized"]:
            return cls(match["of_sized"], f"{match['sized']}[{match['size']}]")
        return cls(match["column"], "identity")

    @property
    def name(self) -> str:
        """The name of the partition field, as Spark forms it. It must be a valid Avro name, because manifest files are
        Avro."""
        kind = self.transform.partition("[")[0]
        name = self.column if kind == "identity" else f"{self.column}_{'trunc' if kind == 'truncate' else kind}"
        return re.sub(r"^(?=\d)", "_", re.sub(r"[^A-Za-z0-9_]", lambda other: f"_x{ord(other[0]):X}", name))

    @property
    def is_bucket(self) -> bool:
        return self.transform.startswith("bucket[")

    def fits(self, arrow_type: str) -> bool:
        """Return whether values of an Arrow type, as text, can be partitioned in this way."""
        if self.transform in TIMES:
            return arrow_type.startswith("timestamp") or (arrow_type.startswith("date32") and self.transform != "hour")
        is_integer = arrow_type in ("int8", "int16", "int32", "int64", "string")
        return is_integer or (self.transform == "identity" and arrow_type in ("bool", "date32[day]"))

    def __str__(self) -> str:
        kind, _, size = self.transform.rstrip("]").partition("[")
        if kind == "identity":
            return self.column
        return f"{kind}({size}, {self.column})" if size else f"{kind}({self.column})"
