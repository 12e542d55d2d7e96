"""What can go wrong with the local services."""

from tidemark.errors import TidemarkError


class SandboxFailed(TidemarkError):
    """A local service could not be started, stopped in the middle, or did not answer in time."""


class SandboxBusy(SandboxFailed):
    """Another `make run`, `make up` or test session uses this checkout's state folder."""

    exit_code = 2


class WrongResult(SandboxFailed):
    """The demo's numbers are not the published ones."""
