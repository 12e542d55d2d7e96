"""Errors of the local services."""

from tidemark.errors import TidemarkError


class SandboxFailed(TidemarkError):
    """A local service did not start, ended too early, or did not answer in time."""


class SandboxBusy(SandboxFailed):
    """Another `make run`, `make up` or test session uses this checkout's state folder."""

    exit_code = 2


class WrongResult(SandboxFailed):
    """The numbers of a result are not the expected ones."""
