"""``schedule`` of a pipeline file: the times at which runs are due."""

from dataclasses import dataclass
from datetime import datetime

from croniter import croniter  # type: ignore[import-untyped]

from tidemark.config.values import cron


@dataclass(frozen=True)
class Schedule:
    """The times at which a schedule is due, in UTC; the DAG has the same."""

    text: str

    def after(self, moment: datetime) -> datetime:
        return self._cron(moment).get_next(datetime)  # type: ignore[no-any-return]

    def before(self, moment: datetime) -> datetime:
        return self._cron(moment).get_prev(datetime)  # type: ignore[no-any-return]

    def has(self, moment: datetime) -> bool:
        return self.before(self.after(moment)) == moment

    def _cron(self, moment: datetime) -> croniter:
        return croniter(cron(self.text), moment)
