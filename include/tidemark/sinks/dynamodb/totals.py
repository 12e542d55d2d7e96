"""Contributions and totals in DynamoDB: one item per key and manifest, and one per key, changed together.

A manifest that provably never had anything in a key *adjusts* its total: DynamoDB itself adds counts and sums; the
least and the greatest value are replaced on the condition that nobody has changed the total since it was read. Else the
total is *combined* again from all contributions of the key, on the same condition.

DynamoDB shows the items of a transaction one by one: who reads two of them may see one before it and one after it. So
the contributions that a total is made of are read in this order (docs/adr/0035-what-a-total-is-made-of.md):

1. The total, with its revision, which every transaction changes that changes a contribution to it.
2. The manifests that are being put. Those of all others are whole, so all reads see them from here on.
3. All contributions to the key.
4. The contributions of the manifests of 2, in one transaction with the total, whose revision is still that of 1.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from tidemark.errors import Unavailable
from tidemark.sinks.aggregates.value_columns import ROWS, Function
from tidemark.sinks.dynamodb.client import Action, Changed, Dynamo
from tidemark.sinks.dynamodb.items import (
    ATTEMPT,
    KEY,
    MANIFEST,
    REVISION,
    TOKEN,
    Item,
    KeyGroup,
    attribute,
    combine_groups,
    combined,
    group_of_item,
)
from tidemark.sinks.dynamodb.markers import Markers
from tidemark.sinks.dynamodb.settings import Settings

KEYS_OF_A_CALL = 49  # DynamoDB takes 100 actions: two for each key, and the check of the marker
TOGETHER = 9  # contributions that are read in one transaction with their total
LOOKS = 20  # at a total that changes while it is compared


@dataclass(frozen=True)
class Putting:
    """The attempt that puts; ``check`` is the condition that it may. ``had_none``: no lower attempt can have put
    anything, so a key where the manifest has no contribution has no share of it in its total either."""

    manifest_id: int
    attempt: int
    token: str
    check: Action
    had_none: bool


class Totals:
    """Both tables of one sink."""

    def __init__(self, settings: Settings, dynamo: Dynamo, markers: Markers) -> None:
        self._settings = settings
        self._dynamo = dynamo
        self._markers = markers
        self.key = settings.aggregate.key
        self.value_columns = settings.aggregate.value_columns

    def put(self, groups: Mapping[str, KeyGroup | None], putting: Putting) -> None:
        """Replace what a manifest has in some keys, None: by nothing; at most ``KEYS_OF_A_CALL``.

        All or nothing; what the same attempt has put before stays as it is. Raises ``Changed`` when somebody has
        changed one of the items meanwhile: the caller asks the fence, and repeats it. Raises ``TooManyDigits`` before
        it puts anything.
        """
        contributions, totals = self.read(list(groups), putting.manifest_id)
        half: set[int] | None = None  # read after the totals
        actions: list[Action] = []
        for key, group in groups.items():
            before = contributions.get(key)
            if before is not None and group is not None and _is_of(before, putting):
                continue
            actions.append(self._contribution(key, group, before, putting))
            total = totals.get(key)
            if before is None and group is not None and putting.had_none:
                actions.append(self._adjusted(group, total))
                continue
            if half is None:
                half = self._markers.half_put()
            others = self._made_of(key, total, half - {putting.manifest_id})
            others.pop(putting.manifest_id, None)
            actions.append(self._combined(key, [*others.values(), *([group] if group else [])], total))
        if actions:
            self._dynamo.write([putting.check, *actions])

    def read(self, keys: Sequence[str], manifest_id: int) -> tuple[dict[str, Item], dict[str, Item]]:
        """What a manifest contributes to some keys, and their totals."""
        wanted = {
            self._settings.contributions: [self._contribution_key(key, manifest_id) for key in keys],
            self._settings.table: [{KEY: {"S": key}} for key in keys],
        }
        items: dict[str, dict[str, Item]] = {table: {} for table in wanted}
        for table, item in self._dynamo.get_each(wanted):
            items[table][item[KEY]["S"]] = item
        return items[self._settings.contributions], items[self._settings.table]

    def contributions_to(self, key: str) -> Iterator[tuple[int, KeyGroup]]:
        """(manifest, group) of all that was contributed to a key."""
        items = self._dynamo.query(self._settings.contributions, "#key = :key", {":key": {"S": key}}, {"#key": KEY})
        for item in items:
            yield int(item[MANIFEST]["N"]), group_of_item(item, self.key, self.value_columns)

    def all_contributions(self) -> Iterator[tuple[int, int, KeyGroup]]:
        """(manifest, attempt, group) of all items of the table that are no markers."""
        for item in self._dynamo.scan(self._settings.contributions):
            if ATTEMPT in item:
                group = group_of_item(item, self.key, self.value_columns)
                yield int(item[MANIFEST]["N"]), int(item[ATTEMPT]["N"]), group

    def combinations(self) -> dict[str, KeyGroup]:
        """What the contributions to each key come to, as a scan finds them."""
        groups: dict[str, KeyGroup] = {}
        for _, _, group in self.all_contributions():
            groups[group.key] = combine_groups(groups.get(group.key), group, self.value_columns)
        return groups

    def stored_key(self) -> KeyGroup | None:
        """Any contribution with all columns of its key, if it can be one whose key is no hash; None without any."""
        hashed = None
        for _, _, group in self.all_contributions():
            if len(group.columns) == len(self.key):
                if group.key.startswith("["):
                    return group
                hashed = hashed or group
        return hashed

    def wrong(self, expected: dict[str, KeyGroup]) -> Iterator[str]:
        """The keys whose total is not the combination of its contributions.

        ``expected`` are the combinations as a scan has found them, by key; it is emptied. What seems wrong is looked at
        again, since the pages of a scan are of different moments.
        """
        for item in self._dynamo.scan(self._settings.table):
            total = group_of_item(item, self.key, self.value_columns)
            if expected.pop(total.key, None) != total and not self.is_right(total.key, item):
                yield total.key
        for key in expected:  # without a total
            if not self.is_right(key, None):
                yield key

    def is_right(self, key: str, total: Item | None) -> bool:
        """Whether the total of a key, which was read before, is the combination of its contributions.

        Also while manifests change it: then it is read again.
        """
        for _ in range(LOOKS):
            groups = [group for _, group in self.contributions_to(key)]
            actual = None if total is None else group_of_item(total, self.key, self.value_columns)
            if combined(groups, self.value_columns) == actual:
                return True
            try:
                groups = list(self._made_of(key, total, self._markers.half_put(), at_last=True).values())
            except Changed:
                total = self._dynamo.get(self._settings.table, {KEY: {"S": key}})
            else:
                return combined(groups, self.value_columns) == actual
        raise self._changing()

    def combine_again(self, key: str) -> None:
        """Put the combination of its contributions in the place of a total."""
        for _ in range(LOOKS):
            total = self._dynamo.get(self._settings.table, {KEY: {"S": key}})
            try:
                groups = self._made_of(key, total, self._markers.half_put())
                self._dynamo.write([self._combined(key, list(groups.values()), total)])
            except Changed:
                continue
            return
        raise self._changing()

    def _changing(self) -> Unavailable:
        return Unavailable(
            "a total changes all the time",
            next_step="repeat the command when fewer manifests are published at the same time",
        )

    def _made_of(
        self, key: str, total: Item | None, half: Collection[int], *, at_last: bool = False
    ) -> dict[int, KeyGroup]:
        """What a total is made of, by manifest: steps 3 and 4 above; ``half`` are the manifests of step 2.

        Raises ``Changed`` when the total is not the one that was read any more. Whoever writes the total on the
        condition of its revision need not know that earlier; ``at_last`` is for all others.
        """
        groups = dict(self.contributions_to(key))
        ids = sorted(half)
        for start in range(0, max(len(ids), 1 if at_last else 0), TOGETHER):
            some = ids[start : start + TOGETHER]
            places = [(self._settings.contributions, self._contribution_key(key, id_)) for id_ in some]
            now, *items = self._dynamo.get_together([(self._settings.table, {KEY: {"S": key}}), *places])
            if _revision(now) != _revision(total):
                raise Changed(first=False)
            for manifest_id, item in zip(some, items, strict=True):
                groups.pop(manifest_id, None)
                if item is not None:
                    groups[manifest_id] = group_of_item(item, self.key, self.value_columns)
        return groups

    def _contribution_key(self, key: str, manifest_id: int) -> Item:
        return {KEY: {"S": key}, MANIFEST: attribute(manifest_id)}

    def _contribution(self, key: str, group: KeyGroup | None, before: Item | None, putting: Putting) -> Action:
        """Put or delete the contribution, if it is still as it was read; that there is none is a condition as well."""
        place = self._contribution_key(key, putting.manifest_id)
        condition: dict[str, Any] = {
            "ConditionExpression": "attribute_not_exists(#attempt)", "ExpressionAttributeNames": {"#attempt": ATTEMPT},
        }  # fmt: skip
        if before is not None:
            condition = {
                "ConditionExpression": "#attempt = :attempt AND #token = :token",
                "ExpressionAttributeNames": {"#attempt": ATTEMPT, "#token": TOKEN},
                "ExpressionAttributeValues": {":attempt": before[ATTEMPT], ":token": before[TOKEN]},
            }
        table = {"TableName": self._settings.contributions, **condition}
        if group is None and before is None:
            return {"ConditionCheck": {"Key": place, **table}}
        if group is None:
            return {"Delete": {"Key": place, **table}}
        by = {ATTEMPT: attribute(putting.attempt), TOKEN: {"S": putting.token}}
        return {"Put": {"Item": {**place, **by, **group.attributes(self.value_columns)}, **table}}

    def _adjusted(self, group: KeyGroup, total: Item | None) -> Action:
        """Add the group to its total."""
        before = None if total is None else group_of_item(total, self.key, self.value_columns)
        together = combine_groups(before, group, self.value_columns)
        together.refuse_too_many_digits(self.value_columns)
        assigned: Item = {**group.columns, REVISION: _new_revision()}
        added: Item = {ROWS: attribute(group.rows)}
        for column, value, result in zip(self.value_columns, group.values, together.values, strict=True):
            if value is None:
                continue
            if column.function in (Function.COUNT, Function.SUM):
                added[column.name] = attribute(value)
            else:
                assigned[column.name] = attribute(result)
        names = {f"#{number}": name for number, name in enumerate([*assigned, *added])}
        places = {name: place[1:] for place, name in names.items()}
        values = {f":{places[name]}": stored for name, stored in (assigned | added).items()}
        update: dict[str, Any] = {
            "TableName": self._settings.table,
            "Key": {KEY: {"S": group.key}},
            "UpdateExpression": f"SET {', '.join(f'#{places[name]} = :{places[name]}' for name in assigned)} "
            f"ADD {', '.join(f'#{places[name]} :{places[name]}' for name in added)}",
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
        }
        if any(column.function in (Function.MIN, Function.MAX) for column in self.value_columns):
            same = _same_revision(total)
            update["ConditionExpression"] = same["ConditionExpression"]
            names |= same["ExpressionAttributeNames"]
            values |= same.get("ExpressionAttributeValues", {})
        return {"Update": update}

    def _combined(self, key: str, groups: Sequence[KeyGroup], total: Item | None) -> Action:
        """Put the combination of what all manifests contribute in the place of a total, if it is still as it was."""
        together = combined(groups, self.value_columns)
        table = {"TableName": self._settings.table, **_same_revision(total)}
        if together is None:
            return {"Delete": {"Key": {KEY: {"S": key}}, **table}}
        together.refuse_too_many_digits(self.value_columns)
        item = {KEY: {"S": key}, REVISION: _new_revision(), **together.attributes(self.value_columns)}
        return {"Put": {"Item": item, **table}}


def _is_of(contribution: Item, putting: Putting) -> bool:
    return contribution[ATTEMPT] == attribute(putting.attempt) and contribution[TOKEN]["S"] == putting.token


def _new_revision() -> dict[str, str]:
    """Never the same again: a total may be removed, and come back."""
    return {"S": uuid4().hex}


def _revision(total: Item | None) -> Any:
    """What two reads of a total are compared by; one that somebody made by hand has no revision."""
    return total if total is None or REVISION not in total else total[REVISION]


def _same_revision(total: Item | None) -> dict[str, Any]:
    """The condition that a total is as it was read."""
    if total is None or REVISION not in total:
        return {
            "ConditionExpression": "attribute_not_exists(#revision)",
            "ExpressionAttributeNames": {"#revision": REVISION},
        }
    return {
        "ConditionExpression": "#revision = :revision",
        "ExpressionAttributeNames": {"#revision": REVISION},
        "ExpressionAttributeValues": {":revision": total[REVISION]},
    }
