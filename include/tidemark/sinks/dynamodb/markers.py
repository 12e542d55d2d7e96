"""The markers beside the contributions: who owns the tables, what is being put, and what is there whole.

They are items of the table of contributions, with a ``_key`` that no contribution has:

    owner,        0         the database, the pipeline and what is added up; the number of publications; the notes of
                            ``OwnerNote``
    marker,       manifest  ``putting`` and ``token``: the attempt that puts, or has put; ``attempt``: the one that is
                            there whole, with its record
    putting,      manifest  that an attempt has begun to put something and none has ended
    keys MANIFEST, number   the keys of an attempt, with its token, stored before it puts anything, so that the next one
                            finds them

The contributions of a manifest are whole while ``putting`` is ``attempt``.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import uuid4

from tidemark.model.receipt import MALFORMED
from tidemark.sinks.base import Owner, Position
from tidemark.sinks.dynamodb.client import Action, Changed, Dynamo, MissingTable
from tidemark.sinks.dynamodb.items import KEY, MANIFEST, Item, value_of

LIST_BYTES = 300_000  # of the keys in one item, before they are compressed; an item has 400 KB
LISTS = 1_000_000  # the number of a list of keys is ATTEMPT * LISTS + its place


class OwnerNote(StrEnum):
    """What is noted beside the owner when an attempt first needs it."""

    TABLES = "tables"  # which two tables the owner has written to
    DECIMALS = "decimals"  # the least digits after the point of numbers in keys, by column
    KINDS = "kinds"  # what the columns of the key are, which never changes
    TARGET = "target"  # the name by which a sink comes to the tables


@dataclass(frozen=True)
class Marker:
    """``attempt`` is None while none was whole yet; ``keys``, ``rows`` and ``checksum`` are those of ``attempt``."""

    putting: int
    token: str
    attempt: int | None
    keys: int
    rows: int
    checksum: str
    record: bytes | None

    @property
    def whole(self) -> bool:
        return self.putting == self.attempt

    def content(self) -> dict[str, Any] | None:
        """The record; None when it is damaged."""
        try:
            content: dict[str, Any] = json.loads(zlib.decompress(self.record or b""))
        except (*MALFORMED, zlib.error):
            return None
        return content


class Markers:
    """The markers of one table of contributions; what does not exist yet has none."""

    def __init__(self, dynamo: Dynamo, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    # the owner

    def take(self, owner: Owner, pipeline_name: str, definition: str) -> None:
        """Make a database the owner, unless there is one."""
        item = {
            **_key("owner", 0), "database": {"S": owner.database}, "before": {"S": json.dumps(owner.before)},
            "pipeline": {"S": pipeline_name}, "definition": {"S": definition}, "identity": {"S": str(uuid4())},
            "publications": {"N": "0"},
        }  # fmt: skip
        condition = {"ConditionExpression": "attribute_not_exists(#key)", "ExpressionAttributeNames": {"#key": KEY}}
        self._written({"Put": {"TableName": self._table, "Item": item, **condition}})

    def hand_over(self, owner: Owner) -> None:
        update = {
            "UpdateExpression": "SET #database = :d, #before = :b",
            "ExpressionAttributeNames": {"#database": "database", "#before": "before"},
            "ExpressionAttributeValues": {":d": {"S": owner.database}, ":b": {"S": json.dumps(owner.before)}},
        }
        self._dynamo.write([{"Update": self._at("owner", 0) | update}])

    def rename_pipeline(self, old: str, new: str) -> None:
        """Write the new name of the pipeline where its old name stands."""
        update = {
            "UpdateExpression": "SET #pipeline = :new",
            "ConditionExpression": "#pipeline = :old",
            "ExpressionAttributeNames": {"#pipeline": "pipeline"},
            "ExpressionAttributeValues": {":new": {"S": new}, ":old": {"S": old}},
        }
        self._written({"Update": self._at("owner", 0) | update})

    def owner(self) -> Owner | None:
        item = self._get("owner", 0)
        return None if item is None else Owner(item["database"]["S"], tuple(json.loads(item["before"]["S"])))

    def position(self) -> Position | None:
        item = self._get("owner", 0)
        return None if item is None else Position(item["identity"]["S"], int(item["publications"]["N"]))

    def noted(self, note: OwnerNote) -> str | None:
        """What was noted beside the owner; None before."""
        item = self._get("owner", 0)
        return None if item is None or note not in item else str(item[note]["S"])

    def note(self, note: OwnerNote, text: str, before: str | None = None) -> None:
        """Note something beside the owner, if what was noted ``before`` still is."""
        condition, values = "attribute_not_exists(#note)", {":text": {"S": text}}
        if before is not None:
            condition, values = "#note = :before", {**values, ":before": {"S": before}}
        update = {
            "UpdateExpression": "SET #note = :text",
            "ConditionExpression": f"attribute_exists(#key) AND {condition}",
            "ExpressionAttributeNames": {"#note": note, "#key": KEY},
            "ExpressionAttributeValues": values,
        }
        self._written({"Update": self._at("owner", 0) | update})

    def decimals(self) -> dict[str, int]:
        """The least digits after the point of numbers in keys, by column; those without an entry have none."""
        return json.loads(self.noted(OwnerNote.DECIMALS) or "{}")  # type: ignore[no-any-return]

    def purpose(self) -> tuple[str, str] | None:
        """The pipeline that writes the tables, and what they add up."""
        item = self._get("owner", 0)
        return None if item is None else (item["pipeline"]["S"], item["definition"]["S"])

    # markers

    def of(self, manifest_id: int) -> Marker | None:
        item = self._get("marker", manifest_id)
        return None if item is None else _marker(item)

    def all(self, above: int = 0) -> dict[int, Marker]:
        """By manifest, without records."""
        names = {"#key": KEY, "#manifest": MANIFEST, **{f"#{name}": name for name in _FIELDS}}
        try:
            items = self._dynamo.query(
                self._table, "#key = :key AND #manifest > :above",
                {":key": {"S": "marker"}, ":above": {"N": str(above)}}, names,
                ", ".join(["#manifest", *(f"#{name}" for name in _FIELDS)]),
            )  # fmt: skip
            return {int(item[MANIFEST]["N"]): _marker(item) for item in items}
        except MissingTable:
            return {}

    def begin(self, manifest_id: int, attempt: int, token: str) -> bool:
        """Announce what an attempt puts; false when a higher one, or another of this number, was announced before."""
        still = _still(attempt, token)
        update = {
            **still,
            "UpdateExpression": "SET #putting = :attempt, #token = :token",
            "ConditionExpression": "attribute_not_exists(#putting) OR #putting < :attempt OR "
            f"({still['ConditionExpression']})",
        }
        half = {"Put": {"TableName": self._table, "Item": _key("putting", manifest_id)}}
        return self._written({"Update": self._at("marker", manifest_id) | update}, half)

    def half_put(self) -> set[int]:
        """The manifests that an attempt has begun to put, and none has ended."""
        items = self._dynamo.query(self._table, "#key = :key", {":key": {"S": "putting"}}, {"#key": KEY})
        return {int(item[MANIFEST]["N"]) for item in items}

    def _no_longer_half(self, manifest_id: int) -> Action:
        return {"Delete": self._at("putting", manifest_id)}

    def check(self, manifest_id: int, attempt: int, token: str) -> Action:
        """Part of a transaction: nothing of it is done unless the attempt is still the one that was announced."""
        return {"ConditionCheck": self._at("marker", manifest_id) | _still(attempt, token)}

    def end(
        self, manifest_id: int, attempt: int, token: str, record: Mapping[str, Any], keys: int, rows: int, checksum: int
    ) -> bool:
        """Say that an attempt is there whole; false when a higher one was announced meanwhile."""
        still = _still(attempt, token)
        names = {f"#{name}": name for name in ("attempt", "record", "keys", "rows", "checksum")}
        values = {
            ":record": {"B": zlib.compress(json.dumps(record).encode())}, ":keys": {"N": str(keys)},
            ":rows": {"N": str(rows)}, ":checksum": {"S": str(checksum)},
        }  # fmt: skip
        marker = {
            **still,
            "UpdateExpression": f"SET {', '.join(f'{place} = :{name}' for place, name in names.items())}",
            "ExpressionAttributeNames": still["ExpressionAttributeNames"] | names,
            "ExpressionAttributeValues": still["ExpressionAttributeValues"] | values,
        }
        owner = {
            "UpdateExpression": "ADD #publications :one",
            "ExpressionAttributeNames": {"#publications": "publications"},
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }
        return self._written(
            {"Update": self._at("marker", manifest_id) | marker},
            {"Update": self._at("owner", 0) | owner},
            self._no_longer_half(manifest_id),
        )

    def undo_partial(self, manifest_id: int, attempt: int, token: str) -> None:
        """Remove the marker of a manifest, if the attempt is still the one that was announced."""
        delete = self._at("marker", manifest_id) | _still(attempt, token)
        self._written({"Delete": delete}, self._no_longer_half(manifest_id))

    # keys

    def list_keys(self, manifest_id: int, attempt: int, token: str, keys: Iterable[str]) -> bool:
        """Store the keys of an attempt; false when another one of this number has stored its own, which stay.

        Equal tokens are of equal keys, which in order are in the same lists.
        """
        for number, part in enumerate(_parts(sorted(keys))):
            put = {
                "TableName": self._table,
                "Item": {
                    **_key(f"keys {manifest_id}", attempt * LISTS + number), "token": {"S": token},
                    "keys": {"B": zlib.compress(json.dumps(part).encode())},
                },
                "ConditionExpression": "attribute_not_exists(#key) OR #token = :token",
                "ExpressionAttributeNames": {"#key": KEY, "#token": "token"},
                "ExpressionAttributeValues": {":token": {"S": token}},
            }  # fmt: skip
            if not self._written({"Put": put}):
                return False
        return True

    def listed_keys(self, manifest_id: int, attempt: int | None = None) -> Iterator[str]:
        """The keys of an attempt, or of all attempts; some of them several times."""
        for item in self._lists(manifest_id):
            if attempt in (None, int(item[MANIFEST]["N"]) // LISTS):
                yield from json.loads(zlib.decompress(value_of(item["keys"])))

    def forget_keys(self, manifest_id: int, below: int) -> None:
        """Remove the lists of lower attempts."""
        for item in self._lists(manifest_id):
            number = int(item[MANIFEST]["N"])
            if number // LISTS < below:
                self._dynamo.write([{"Delete": self._at(f"keys {manifest_id}", number)}])

    def _lists(self, manifest_id: int) -> Iterator[Item]:
        return self._dynamo.query(self._table, "#key = :key", {":key": {"S": f"keys {manifest_id}"}}, {"#key": KEY})

    def _at(self, key: str, number: int) -> dict[str, Any]:
        return {"TableName": self._table, "Key": _key(key, number)}

    def _written(self, *actions: Action) -> bool:
        """Whether the actions were done; false when a condition of theirs does not hold."""
        try:
            self._dynamo.write(actions)
        except Changed:
            return False
        return True

    def _get(self, key: str, number: int) -> Item | None:
        try:
            return self._dynamo.get(self._table, _key(key, number))
        except MissingTable:
            return None


_FIELDS = ("putting", "token", "attempt", "keys", "rows", "checksum")


def _key(key: str, number: int) -> Item:
    return {KEY: {"S": key}, MANIFEST: {"N": str(number)}}


def _still(attempt: int, token: str) -> dict[str, Any]:
    """The condition that the attempt is still the one that was announced."""
    return {
        "ConditionExpression": "#putting = :attempt AND #token = :token",
        "ExpressionAttributeNames": {"#putting": "putting", "#token": "token"},
        "ExpressionAttributeValues": {":attempt": {"N": str(attempt)}, ":token": {"S": token}},
    }


def _marker(item: Item) -> Marker:
    number = {name: int(item[name]["N"]) for name in ("attempt", "keys", "rows") if name in item}
    return Marker(
        int(item["putting"]["N"]), item["token"]["S"], number.get("attempt"), number.get("keys", 0),
        number.get("rows", 0), item["checksum"]["S"] if "checksum" in item else "0",
        value_of(item["record"]) if "record" in item else None,
    )  # fmt: skip


def _parts(keys: Iterable[str]) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for key in keys:
        size += len(key.encode()) + 4
        if size > LIST_BYTES:
            yield part
            part, size = [], len(key.encode()) + 4
        part.append(key)
    if part:
        yield part
