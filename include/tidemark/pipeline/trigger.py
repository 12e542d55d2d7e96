"""``trigger`` of a pipeline file: a run begins when enough offsets wait, and at the latest ``at_least_every`` after the
last plan."""

from datetime import timedelta
from typing import Final

from pydantic import Field, StrictInt, ValidationInfo, field_validator

from tidemark.config.base import Duration, Section
from tidemark.config.values import wrong

POLL: Final = timedelta(seconds=10)  # the pause between two looks at the lag
_MOST_DOUBLINGS: Final = 12  # of the shortest pause; a pause ends at ``at_least_every`` in any case


class Trigger(Section):
    """The number of offsets that must wait for a run to begin, and the shortest and longest time between two runs."""

    lag: StrictInt = Field(
        ge=1, description="A run [begins](#when-enough-records-wait) when so many offsets are not planned yet."
    )
    at_most_every: Duration = Field(
        default=timedelta(minutes=1),
        description="The shortest time from one plan to the next run, at least `10s`. If no plan follows a start, "
        "because Airflow is busy or plans fail, the pause doubles, up to `at_least_every`.",
        json_schema_extra={"default": "1m"},
    )
    at_least_every: Duration = Field(
        default=timedelta(hours=1),
        validate_default=True,
        description="A run begins in any case so long after the last plan: it takes what is there, and closes event "
        "hours.",
        json_schema_extra={"default": "1h"},
    )

    @field_validator("at_most_every")
    @classmethod
    def _as_often_as_it_looks(cls, at_most_every: timedelta) -> timedelta:
        if at_most_every < POLL:
            raise wrong(f"must be at least {POLL.seconds}s: the lag is asked that often")
        return at_most_every

    @field_validator("at_least_every")
    @classmethod
    def _not_shorter(cls, at_least_every: timedelta, info: ValidationInfo) -> timedelta:
        if at_least_every < info.data.get("at_most_every", timedelta()):
            raise wrong("must be at least as long as at_most_every (1h without a value)")
        return at_least_every

    def is_due(
        self,
        lag: int | None,
        planned_ago: timedelta | None,
        fired_ago: timedelta | None = None,
        unanswered: int = 0,
    ) -> bool:
        """Return whether a run should begin now.

        ``lag`` is None if the source does not answer, ``planned_ago`` if the pipeline was never planned, ``fired_ago``
        if no run was asked for yet. ``unanswered`` runs were asked for since the last plan.
        """
        if planned_ago is not None and planned_ago < self.at_most_every:
            return False
        if unanswered and fired_ago is not None:
            pause = self.at_most_every * 2 ** min(unanswered - 1, _MOST_DOUBLINGS)
            if fired_ago < min(pause, self.at_least_every):
                return False
        return (lag or 0) >= self.lag or planned_ago is None or planned_ago >= self.at_least_every
