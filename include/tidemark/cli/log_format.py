"""The format of a command's log, for people or for programs. It is chosen before a command is imported."""

from enum import StrEnum


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"  # one object per line, with the keys of docs/operations.md


_chosen = [LogFormat.TEXT]  # for all threads of this process: a context of click belongs to one thread


def choose_format(log_format: LogFormat) -> None:
    _chosen[:] = [log_format]


def chosen_format() -> LogFormat:
    return _chosen[0]
