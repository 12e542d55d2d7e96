"""Keeps the copy of one table's totals up to date.

The merge of a manifest commits totals with new revisions. Before a manifest is marked, all totals that the copy lacks
are put, of whatever manifest. So totals that a process committed but, because it died, did not put, are put by the next
one. A total is put as it is when it is read, which is as new as the committed one, or newer.
"""

from collections.abc import Iterator
from itertools import islice

from tidemark.errors import SinkRefused
from tidemark.failpoints import failpoint
from tidemark.model.manifest import count_of
from tidemark.model.problem import Problem
from tidemark.providers.postgres.totals.copies import CopyOfTotals, Total
from tidemark.providers.postgres.totals.tables import PAGE, Totals

_BY_HAND = "no attempt of Tidemark has left them there: delete those items by hand"


class ServedTotals:
    """The totals of one table, and the place of their copy."""

    def __init__(self, table: Totals, copy: CopyOfTotals) -> None:
        self._table = table
        self._copy = copy

    def check(self) -> None:
        """Raise ``SinkRefused`` unless the place is free, or has this copy already; changes nothing."""
        self._copy.check()

    def rehearse(self) -> str:
        return self._copy.rehearse()

    def claim(self) -> None:
        """Make the totals the owner of the place, and note the place's identity. The totals have an owner already."""
        self._copy.claim(self._owner())
        self._table.make_copies_support()
        self._table.rows("note_first_copy", identity=self._copy.identity())

    def _owner(self) -> str:
        return str(self._table.kept("owner")[0]["identity"])

    def moved(self) -> str | None:
        """Return the identity of the place if it is not the place into which the totals were put; else None."""
        registered = self._table.registered_copy()
        identity = self._copy.identity() if registered is not None else None
        return None if identity == registered else str(identity)

    def number(self) -> None:
        """Give each total a revision, if totals have none yet."""
        if not self._table.are_numbered():
            # If the database was restored from a backup, the place may have items with higher revisions.
            self._table.number(self._copy.compare(()).highest_revision)

    def refuse_what_has_no_room(self, manifest_id: int) -> None:
        """Raise ``SinkRefused``, before COMMIT in the open transaction, for a total that the copy cannot hold."""
        copy = self._copy
        limits = {
            "longest_key": copy.longest_key, "longest_total": copy.longest_total, "most_digits": copy.most_digits,
        }  # fmt: skip
        for total in self._table.near_a_limit(**limits):
            if problem := copy.problem_with(total):
                raise SinkRefused(
                    problem,
                    next_step="nothing was applied; filter such records, or take served_in out of the pipeline file; "
                    f"then: tidemark retry {self._table.pipeline_name}",
                    **self._table.context(manifest=manifest_id),
                )

    def put_rest(self) -> None:
        """Put every total that the copy lacks; may be repeated, even by several processes at once.

        One pass is enough: a total that changes meanwhile gets a higher revision, and so comes later in the same pass.
        """
        after = 0
        while rows := self._table.rows("not_served", self._table.parts, after=after, most=PAGE):
            totals = list(map(self._table.total_of, rows))
            self._copy.put(totals)
            failpoint("publish.mid")
            after = totals[-1].revision
            self._table.rows("were_served", self._table.parts, revisions=[total.revision for total in totals])

    def has_totals_of(self, manifest_id: int) -> bool:
        """Return whether the copy has, in their current form, all totals to which the manifest contributes."""
        totals = self._table.each_total(manifest_id=manifest_id)
        while page := list(islice(totals, PAGE)):
            if self._copy.differing(page):
                return False
        return True

    def differences(self) -> Iterator[Problem]:
        """Yield items that the copy should not have, items that it lacks, and items that differ from their total.

        Other processes may change totals meanwhile.
        """
        table, place = self._table.table, self._copy.place
        wrong, strays = self._differing()
        if wrong:
            named = self._table.rows("contributors", self._table.parts, revisions=[total.revision for total in wrong])
            for row in named:
                yield Problem(
                    row["manifest"],
                    f"{count_of(row['totals'], 'item')} of {place} are not the totals of {table}",
                    f"tidemark replay {self._table.pipeline_name} --manifest {row['manifest']}",
                    f"({row['example']})",
                )
        strays += [self._copy.key_of(total) for total in wrong if not total.rows]
        if strays:
            what = f"{count_of(len(strays), 'item')} of {place} have no total in {table}"
            yield Problem(None, what, _BY_HAND, min(strays))

    def _differing(self) -> tuple[list[Total], list[str]]:
        """Return (totals that count as served but differ from the copy, keys that only the copy has)."""
        compared = self._copy.compare(self._table.each_total(served=True))
        if not compared.differing and not compared.strays:
            return [], []
        # A total may have changed between the two reads, so totals that seem wrong are read again on both sides.
        strays, suspects = set(compared.strays), []
        for total in self._table.each_total():
            key = self._copy.key_of(total)
            strays.discard(key)
            if key in compared.differing:
                suspects.append(total)
        differing = self._copy.differing(suspects)
        revisions = [total.revision for total in differing]
        served = {row["_revision"] for row in self._table.rows("still_served", self._table.parts, revisions=revisions)}
        return [total for total in differing if total.revision in served], sorted(strays)

    def derive_again(self, *, dry_run: bool) -> str | None:
        """Make the copy equal to the totals, even if one of them was restored; return a line if they differ.

        No attempt may be running. In a dry run nothing is changed.
        """
        if not self._table.are_numbered():
            return None  # nothing was put yet
        self._copy.check()
        if not dry_run:
            self.claim()
        compared = self._copy.compare(self._table.each_total())
        differing = len(compared.differing) + len(compared.strays)
        if not dry_run:
            revision = self._table.lift_revisions(compared.highest_revision)
            self._copy.empty(compared.strays, revision)
            if compared.differing:
                self._table.rows("renumber", self._table.parts)
            self.put_rest()
            self._table.rows("note_copy", identity=self._copy.identity())
        if not differing:
            return None
        return f"{self._copy.place}: {count_of(differing, 'item')} put again from {self._table.table}"
