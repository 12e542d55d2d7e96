"""Small files of a task are finished beside its work, where the store makes it wait for each."""

from collections.abc import Callable
from threading import Barrier, Event, Semaphore, Thread, current_thread
from typing import Any

import pytest

from tidemark.errors import Unavailable
from tidemark.model.receipt import ObjectKind
from tidemark.sinks.staging.finished_files import SMALL_BYTES, FinishedFiles
from tidemark.sinks.writer import StagedPart

STUCK_S = 30.0


def part(number: int) -> StagedPart:
    return StagedPart("files", ObjectKind.DATA, f"{number}", "raw", "parquet", "orders", ((0, 0, 0),), 1, 1, "0")


def finishing(number: int, before: Callable[[], Any]) -> Callable[[], StagedPart]:
    def finish() -> StagedPart:
        before()
        return part(number)

    return finish


def test_small_files_are_finished_at_once_and_kept_in_the_order_in_which_they_came() -> None:
    together = Barrier(4)
    files = FinishedFiles(at_once=4)
    for number in range(8):
        files.add(100, finishing(number, lambda: together.wait(STUCK_S)))
    assert files.parts() == [part(number) for number in range(8)]


def test_no_more_files_than_allowed_are_finished_at_once() -> None:
    begun, may_end = Semaphore(0), Semaphore(0)
    files = FinishedFiles(at_once=2)

    def wait_for_word() -> None:
        begun.release()
        assert may_end.acquire(timeout=STUCK_S)

    def add_three() -> None:
        for number in range(3):
            files.add(100, finishing(number, wait_for_word))

    task = Thread(target=add_three)
    task.start()
    assert all(begun.acquire(timeout=STUCK_S) for _ in range(2))
    assert not begun.acquire(timeout=0.2), "the third waits for one of the others"
    may_end.release()
    assert begun.acquire(timeout=STUCK_S)
    may_end.release(2)
    task.join(STUCK_S)
    assert len(files.parts()) == 3


@pytest.mark.parametrize(("at_once", "size"), [(1, 100), (4, SMALL_BYTES + 1)], ids=["folder", "large file"])
def test_a_file_of_a_folder_and_a_large_file_are_finished_by_the_task_itself(at_once: int, size: int) -> None:
    threads = []
    files = FinishedFiles(at_once)
    for number in range(3):
        files.add(size, finishing(number, lambda: threads.append(current_thread())))
    assert threads == [current_thread()] * 3
    assert files.parts() == [part(number) for number in range(3)]


def failing() -> StagedPart:
    raise Unavailable("S3 did not answer", next_step="try again")


def test_the_error_of_a_file_is_raised_by_the_next_call_that_waits_and_by_the_last_one() -> None:
    finished: list[int] = []
    files = FinishedFiles(at_once=2)

    def add_ten() -> None:
        for number in range(10):
            files.add(100, finishing(number, lambda: finished.append(1)))

    files.add(100, failing)
    with pytest.raises(Unavailable, match="did not answer"):
        add_ten()
    files.abandon()
    assert len(finished) < 10
    files = FinishedFiles(at_once=4)
    files.add(100, failing)
    files.add(100, finishing(1, lambda: finished.append(2)))
    with pytest.raises(Unavailable, match="did not answer"):
        files.parts()
    assert finished[-1] == 2, "the others were finished"


def test_what_is_abandoned_has_no_file_under_way_any_more() -> None:
    finished: list[int] = []
    may_end = Event()

    def end() -> None:
        assert may_end.wait(STUCK_S)
        finished.append(1)

    files = FinishedFiles(at_once=4)
    for number in range(3):
        files.add(100, finishing(number, end))
    may_end.set()
    files.abandon()
    assert len(finished) == 3
