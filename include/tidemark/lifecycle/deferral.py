"""An attempt whose driver works on while no process of ours waits for it.

A process starts the driver, leaves a lease in the database, and ends. A second one takes the attempt up again when the
driver has answered; between them, whoever looks for the answer renews the lease.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tidemark.errors import TidemarkError, Unavailable

LEASE_S = 120.0  # until somebody renews it


@dataclass(frozen=True)
class Deferral:
    """The knowledge of the second process: the attempt, the fingerprint of its pipeline, the address of its order, the
    id of the connection to its store, where the driver's log is, and the sinks that it does not write to, each with the
    reason. ``unanswered`` is the reason why no answer of the driver is expected.
    """

    attempt: int
    fingerprint: str
    order: str
    connection: str | None
    log: str
    failed: Mapping[str, TidemarkError] = field(default_factory=dict)
    unanswered: str = "what it wrote is gone"


class StagedElsewhere(BaseException):
    """Raised by a stage that has started a driver and does not wait, with the address of the order, the id of the
    connection to its store, and where the driver's log is; ``withdraw`` removes the order.
    """

    def __init__(self, order: str, connection: str | None, log: str, withdraw: Callable[[], object]) -> None:
        super().__init__(order)
        self.order, self.connection, self.log, self.withdraw = order, connection, log, withdraw


class AttemptDeferred(BaseException):
    """The attempt goes on without this process. It is no error."""

    def __init__(self, deferral: Deferral) -> None:
        super().__init__(deferral)
        self.deferral = deferral


def still_waiting(error: Unavailable, answered_at: float, patience: float) -> str:
    """Return a line about a system that does not answer; raises the error if it has not for ``patience`` seconds, since
    ``answered_at`` on the monotonic clock.
    """
    if time.monotonic() - answered_at > patience:
        raise error
    return f"still waiting: {error.what}"
