"""Every combination of what the database may know and a target may show: one verdict, one next step, and no circle."""

from collections.abc import Iterator
from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import chain, combinations, product
from pathlib import Path

from tidemark.model.verdict import Known, NextStep, Shown, Verdict, command, judge, next_step_of

TABLE = Path(__file__).parents[2] / "docs" / "verdicts.md"
ATTEMPTS = (1, 2, 3)
NEVER_GIVEN_OUT = 4  # the database was restored from an older copy

Case = tuple[Known, Shown, bool]


def subsets(attempts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(attempts, size) for size in range(len(attempts) + 1))


def digest(attempt: int) -> str:
    return f"digest of {attempt}"


def cases() -> Iterator[Case]:
    for receipts in subsets(ATTEMPTS):
        for taken_back in subsets(receipts):
            for published in (None, *(attempt for attempt in receipts if attempt not in taken_back)):
                for behind, done, given_up, takes_back in product((False, True), repeat=4):
                    digests = {attempt: digest(attempt) for attempt in receipts}
                    known = Known(digests, frozenset(taken_back), published, behind, done, given_up)
                    yield from ((known, shown, takes_back) for shown in shows(published))


def shows(published: int | None) -> Iterator[Shown]:
    """An attempt without evidence has no digest, and what is whole of an attempt is whole of the published one too."""
    for evidence in (None, *ATTEMPTS, NEVER_GIVEN_OUT):
        for shown_digest in (None, evidence and digest(evidence), "another digest") if evidence else (None,):
            for whole in (False, True) if evidence else (False,):
                for published_whole in (whole,) if evidence == published else (False, True):
                    yield Shown(
                        evidence, shown_digest, whole=whole, published_whole=bool(published) and published_whole
                    )


def after(case: Case, verdict: Verdict) -> Iterator[Case]:
    """What may be the case when the next step of a verdict was done."""
    known, shown, takes_back = case
    evidence = shown.evidence or 0
    match verdict:
        case Verdict.IN_STEP:
            return
        case Verdict.UNSTARTED | Verdict.BEHIND | Verdict.UNFILLED | Verdict.DAMAGED:
            yield a_new_attempt(case)
        case Verdict.MARK_MISSING:
            now = replace(known, published=evidence, behind=False, given_up=False)
            yield now, replace(shown, whole=True, published_whole=True), takes_back
        case Verdict.SUPERSEDED:
            yield from without_evidence(replace(known, taken_back=known.taken_back | {evidence}), shown, takes_back)
        case Verdict.EVIDENCE_MISSING:
            published = known.published or 0
            yield known, Shown(published, digest(published), whole=True, published_whole=True), takes_back
        case Verdict.UNKNOWN:
            yield from adopted(case)


def a_new_attempt(case: Case) -> Case:
    known, shown, takes_back = case
    number = 1 + max([0, shown.evidence or 0, *known.receipts])
    receipts = {**known.receipts, number: digest(number)}
    taken_back = known.taken_back | {attempt for attempt in known.receipts if attempt > (known.published or 0)}
    now = Known(receipts, taken_back, number, behind=False, done=True, given_up=False)
    return now, Shown(number, digest(number), whole=True, published_whole=True), takes_back


def without_evidence(known: Known, shown: Shown, takes_back: bool) -> Iterator[Case]:
    """The evidence was removed; a lower one may be there, but none below what is published counts."""
    for lower in range(shown.evidence or 0):
        for whole in (False, True) if lower else (False,):
            is_published = lower == known.published
            yield (
                known,
                Shown(
                    lower or None,
                    digest(lower) if lower else None,
                    whole=shown.published_whole if is_published else whole,
                    published_whole=shown.published_whole,
                ),
                takes_back,
            )


def adopted(case: Case) -> Iterator[Case]:
    known, shown, takes_back = case
    evidence = shown.evidence or 0
    if shown.digest is None:  # nobody can read it: a person moves it away
        yield from without_evidence(known, shown, takes_back)
        return
    receipts = {**known.receipts, evidence: shown.digest}
    taken_back = known.taken_back - {evidence}
    now = replace(known, receipts=receipts, taken_back=taken_back, behind=False, given_up=False)
    if shown.whole or not takes_back:
        yield replace(now, published=evidence), replace(shown, whole=True, published_whole=True), takes_back
        return
    yield replace(now, published=evidence), replace(shown, published_whole=False), takes_back  # nothing is whole
    for lower in range((known.published or 0) + 1, evidence):  # the newest whole record
        lower_too = replace(now, receipts={**receipts, lower: digest(lower)}, published=lower)
        yield replace(lower_too, taken_back=taken_back - {lower}), replace(shown, published_whole=True), takes_back


def test_every_combination_has_one_verdict_and_every_verdict_occurs() -> None:
    verdicts = [judge(known, shown, takes_back=takes_back) for known, shown, takes_back in cases()]
    assert len(verdicts) > 20_000
    assert set(verdicts) == set(Verdict)


def test_no_next_step_leads_back_to_a_verdict_that_was_left() -> None:
    """Only a new attempt makes higher evidence, and it ends in step. Else the evidence gets lower, or the verdict is
    one that was not there before."""
    follows: dict[Verdict, set[Verdict]] = {verdict: set() for verdict in Verdict}
    for case in cases():
        verdict = judge(case[0], case[1], takes_back=case[2])
        for then in after(case, verdict):
            next_verdict = judge(then[0], then[1], takes_back=then[2])
            before, now = case[1].evidence or 0, then[1].evidence or 0
            if now == before:
                follows[verdict].add(next_verdict)
            elif now > before:
                assert next_verdict is Verdict.IN_STEP or verdict is Verdict.EVIDENCE_MISSING, (case, then)
    order = list(TopologicalSorter(follows).static_order())  # raises CycleError
    assert order[0] is Verdict.IN_STEP


def test_a_database_that_lacks_a_receipt_never_calls_the_evidence_its_own() -> None:
    for known, shown, takes_back in cases():
        above = (shown.evidence or 0) >= (known.published or 1)
        if above and shown.evidence not in known.receipts:
            assert judge(known, shown, takes_back=takes_back) is Verdict.UNKNOWN


def test_what_was_taken_back_or_is_not_whole_is_never_published() -> None:
    for known, shown, _ in cases():
        if judge(known, shown, takes_back=True) is Verdict.MARK_MISSING:
            assert shown.evidence not in known.taken_back
            assert shown.whole


def test_what_a_person_has_given_up_is_not_missed() -> None:
    missed = {Verdict.DAMAGED, Verdict.EVIDENCE_MISSING, Verdict.BEHIND, Verdict.UNFILLED, Verdict.UNSTARTED}
    for known, shown, takes_back in cases():
        assert not known.given_up or judge(known, shown, takes_back=takes_back) not in missed


def test_a_marker_is_never_written_without_its_rows() -> None:
    for known, shown, _ in cases():
        assert judge(known, shown, takes_back=False) not in (Verdict.EVIDENCE_MISSING, Verdict.SUPERSEDED)


def test_the_table_of_the_docs_names_every_verdict_with_its_step() -> None:
    rows = [line.split("|") for line in TABLE.read_text().splitlines() if line.startswith("| ")][1:]
    told = {cells[1].strip(): cells[3].strip() for cells in rows}
    assert told == {verdict.value: next_step_of(verdict).value for verdict in Verdict}


def test_each_step_is_a_command_that_names_the_pipeline() -> None:
    for step in NextStep:
        line = command(step, "orders", 7, "lake")
        assert (line == "") == (step is NextStep.NOTHING)
        assert step is NextStep.NOTHING or "orders" in line
