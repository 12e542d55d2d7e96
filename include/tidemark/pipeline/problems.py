"""Problems of pipeline files."""

from dataclasses import dataclass
from typing import Final

from tidemark.errors import ConfigurationError

_NEXT: Final = "correct it and check again with: tidemark validate"


@dataclass(frozen=True)
class FileProblem:
    """One thing to correct. For the file as a whole, ``line`` is None and ``key`` is empty."""

    file: str
    line: int | None
    key: str
    message: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (where, self.key, self.message) if part)


class InvalidPipelines(ConfigurationError):
    """Pipeline files are wrong; ``problems`` has all of them, in the order of files and lines."""

    before_context = "\n"  # some of the lines end with a command

    def __init__(self, problems: list[FileProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, problems)), next_step=_NEXT)
