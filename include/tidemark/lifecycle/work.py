"""Processes the manifests of a run in this process, for ``run``, ``retry`` and ``replay`` without Airflow: one after
the other, or several at once if the pipeline file says so (``spark.parallel_slices``).

Each slice that runs at once is a thread with a database session, a source and sinks of its own. So its attempts have
what those of a process have: a session lock, a fence, receipts. Only Spark and the client of a source are shared.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import Protocol

from tidemark.errors import NotDone, TidemarkError, Unavailable, about
from tidemark.lifecycle.attempt import NOTHING, Allowed, process
from tidemark.lifecycle.context import Context, open_context
from tidemark.lifecycle.failed_tasks import watched_process
from tidemark.lifecycle.publish import Outcome
from tidemark.model.manifest import Manifest, count_of
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt

END_AGAIN_S = 0.5  # end jobs again after this time: one may begin just after the others were ended


class Progress:
    """The receiver of what happens; it shows nothing. A subclass may show it."""

    def begins(self, manifest: Manifest, number: int, of: int) -> None:
        """The ``number``-th manifest of so many begins."""

    def ended(self, outcome: Outcome) -> None:
        """An attempt ended well."""

    def failed(self, error: TidemarkError) -> None:
        """An attempt failed, and others follow. Not called for a single manifest, whose error is raised."""

    def left_out(self, manifest: Manifest) -> None:
        """A manifest is left out, because an attempt at it is alive."""


class SharedStage(Protocol):
    """A ``Stage`` that several threads may call at once."""

    def __call__(self, order: Order) -> Receipt: ...

    def start(self, records: int) -> None:
        """Start what several threads cannot start at once. The orders will have at most so many records together."""

    def end_jobs(self) -> None:
        """End the jobs that are at work; the calls that wait for them then raise."""


def work_through(
    context: Context,
    manifests: Sequence[Manifest],
    stage: SharedStage,
    progress: Progress,
    *,
    replay: bool = False,
    take_over: bool = False,
    allowed: Allowed = NOTHING,
) -> list[Manifest]:
    """Process the manifests. If one fails, the others go on, unless an outside system is down: all would wait for it.

    If only one of several sinks is down, the others still get everything. Returns the manifests that were left out,
    because another attempt at them began after they were listed.
    """
    work = _Work(manifests, stage, progress, replay, take_over, allowed)
    at_once = min(context.pipeline.spark.parallel_slices, len(manifests))
    if at_once > 1:
        _work_in_threads(context, at_once, work)
    else:
        work.through(context)
    if work.errors:
        raise work.errors[0] if len(manifests) == 1 else _several(context, work.errors, len(manifests))
    return work.left_out


@dataclass
class _Work:
    """The manifests to process, and the results. ``through`` may run in several threads, each with its own context."""

    manifests: Sequence[Manifest]
    stage: SharedStage
    progress: Progress
    replay: bool
    take_over: bool
    allowed: Allowed
    errors: list[TidemarkError] = field(default_factory=list)
    defects: list[BaseException] = field(default_factory=list)  # errors of threads that are not ``TidemarkError``
    left_out: list[Manifest] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)  # guards ``_waiting``, the results, and calls of ``progress``
    _interrupted: bool = False

    def __post_init__(self) -> None:
        self._waiting = list(enumerate(self.manifests, 1))

    def interrupt(self) -> None:
        """Begin no further manifest; an attempt whose job was ended counts as interrupted."""
        self._interrupted = True
        self._waiting.clear()

    def in_thread(self, context: Context, ended: Event) -> None:
        """Call ``through`` in a thread; what it raises ends the work of all threads. Sets ``ended`` in any case."""
        try:
            self.through(context)
        except BaseException as defect:
            self.defects.append(defect)
            self._waiting.clear()
        finally:
            ended.set()

    def through(self, context: Context) -> None:
        """Process the waiting manifests, one after the other, until none waits."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                number, manifest = self._waiting.pop(0)
            try:
                with about(pipeline=context.pipeline_name):
                    self._process(context, manifest, number)
            except TidemarkError as error:
                self._failed(error, of_one_sink=len(context.sinks) > 1 and "sink" in error.context)

    def _process(self, context: Context, manifest: Manifest, number: int) -> None:
        now = context.database.manifests.get(manifest.id)
        if now.alive and not self.take_over:
            with self._lock:
                self.progress.left_out(now)
                self.left_out.append(now)
            return
        with self._lock:
            self.progress.begins(manifest, number, len(self.manifests))
        with watched_process(context.database.reopened, context.pipeline_name, manifest.id):
            outcome = process(context, manifest.id, self._staged, replay=self.replay, allowed=self.allowed)
        with self._lock:
            self.progress.ended(outcome)

    def _failed(self, error: TidemarkError, *, of_one_sink: bool) -> None:
        with self._lock:
            if len(self.manifests) > 1:
                self.progress.failed(error)
            self.errors.append(error)
            if isinstance(error, Unavailable) and not of_one_sink:
                self._waiting.clear()

    def _staged(self, order: Order) -> Receipt:
        try:
            if self._interrupted:
                raise KeyboardInterrupt
            return self.stage(order)
        except TidemarkError as error:
            if self._interrupted:
                raise KeyboardInterrupt from error
            raise


def _work_in_threads(context: Context, number: int, work: _Work) -> None:
    """Work in so many threads. Ctrl-C ends their jobs, waits until their attempts have ended, and is then raised. An
    attempt that is publishing at that time finishes. A second Ctrl-C is raised at once."""
    with ExitStack() as opened:
        contexts = [
            open_context(context.pipeline, opened.enter_context(context.database.reopened()), context.lookup)
            for _ in range(number)
        ]
        work.stage.start(sum(covered.span for manifest in work.manifests for covered in manifest.ranges))
        # Do not join: if Ctrl-C interrupts the join, Python 3.11 takes the thread for ended.
        ends = [Event() for _ in contexts]
        for own, ended in zip(contexts, ends, strict=True):
            Thread(target=work.in_thread, args=[own, ended], name="slice", daemon=True).start()
        try:
            _wait(ends)
        except KeyboardInterrupt:
            work.interrupt()
            _wait(ends, work.stage.end_jobs)
            raise
    if work.defects:
        raise work.defects[0]


def _wait(ends: Sequence[Event], every: Callable[[], None] | None = None) -> None:
    """Wait for all events. Until then, call ``every`` at once and each ``END_AGAIN_S``."""
    for ended in ends:
        while not ended.is_set():
            if every is not None:
                every()
            ended.wait(END_AGAIN_S)


def _several(context: Context, errors: list[TidemarkError], of: int) -> TidemarkError:
    return NotDone(
        f"{len(errors)} of {of} manifests failed",
        next_step=f"correct what the messages above name, then: tidemark retry {context.pipeline_name}",
    )


def refuse_left_out(context: Context, left_out: Sequence[Manifest]) -> None:
    """Raise ``NotDone`` if a replay has left manifests out."""
    if left_out:
        commands = [
            f"tidemark replay {context.pipeline_name} --manifest {manifest.id} --take-over" for manifest in left_out
        ]
        raise NotDone(
            f"{count_of(len(left_out), 'manifest')} not replayed: another attempt is at work there",
            next_step=f"wait for it, or fence it: {'; '.join(commands)}",
        )
