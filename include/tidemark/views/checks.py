"""The findings of an audit, of a comparison of one manifest and of a question for completeness."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from tidemark.manifest import ManifestState, WithoutRows
from tidemark.operations.audit import Compared
from tidemark.operations.complete import Completeness
from tidemark.sinks.difference import Difference
from tidemark.views.manifests import RangeView, range_view


@dataclass(frozen=True)
class DifferenceView:
    """Something that is not as recorded; ``manifest_id`` is None when it belongs to no manifest."""

    manifest_id: int | None
    what: str
    next_step: str

    def __str__(self) -> str:
        where = "" if self.manifest_id is None else f"manifest {self.manifest_id}: "
        return f"{where}{self.what}; next: {self.next_step}"


@dataclass(frozen=True)
class ComparedView:
    """What one sink shows of a manifest; ``verdict`` is one of ``docs/verdicts.md``.

    It is None while an attempt is at work, and when the sink does not answer. ``next_step`` is empty when there is
    nothing to do.
    """

    sink: str
    target: str
    verdict: str | None
    what: str
    next_step: str


@dataclass(frozen=True)
class MissingView:
    """Offsets ``[start, end)`` of one manifest that ``sink`` does not show; ``state`` is the manifest's."""

    manifest_id: int
    state: ManifestState
    sink: str
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class CompletenessView:
    """Whether everything before the cut time ``until`` is published, and what is missing.

    ``run_key`` is the run that answers, planned up to ``until`` or past it. It is None when no run has planned so far
    yet; then ``planned_up_to`` is that of the furthest run, and ``missing`` is all that is planned and unpublished.
    ``lost`` offsets can never be published and do not make it incomplete. Of what came after ``since`` (None: ever),
    ``without_rows`` became no rows, and a person has accepted that the sinks ``given_up`` lack some of it; ``whole`` is
    complete without dead letters, losses and output that was given up.
    """

    until: datetime
    complete: bool
    run_key: str | None
    planned_up_to: datetime | None
    missing: tuple[MissingView, ...]
    lost: tuple[RangeView, ...]
    since: datetime | None
    without_rows: WithoutRows
    given_up: tuple[str, ...]
    whole: bool


def difference_views(differences: Iterable[Difference]) -> list[DifferenceView]:
    return [DifferenceView(each.manifest_id, _with_example(each), each.next_step) for each in differences]


def _with_example(difference: Difference) -> str:
    return f"{difference.what}, such as {difference.example}" if difference.example else difference.what


def compared_views(sinks: Iterable[Compared]) -> list[ComparedView]:
    return [ComparedView(**vars(each)) for each in sinks]


def completeness_view(completeness: Completeness) -> CompletenessView:
    missing = tuple(
        MissingView(part.manifest_id, part.state, part.sink, **vars(range_view(part.covered)))
        for part in completeness.missing
    )
    lost = tuple(map(range_view, completeness.lost))
    counted = completeness.without_rows
    lacks = counted.dead_lettered or counted.lost or completeness.given_up
    return CompletenessView(
        completeness.until, completeness.complete, completeness.run_key, completeness.planned_up_to, missing, lost,
        completeness.since, counted, completeness.given_up, completeness.complete and not lacks,
    )  # fmt: skip
