"""The records that every contender reads: the same for the same seed, about 170 bytes of JSON each.

Events are spread evenly over ``HOURS`` hours, in order, as in a backlog. One in a hundred is late: it arrives in Kafka
between two and five hours after it happened.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

HOURS = 30
PARTITIONS = 4
SMALL_MESSAGES = 1_000  # in the topic for measuring how long a contender takes to start
START_S = 1_709_251_200  # 2024-03-01 00:00 UTC
LATE_EVERY = 100
ALLOWED_LATENESS_S = 3_600
KINDS = ("view", "click", "search", "basket", "purchase", "return", "share", "login")
COUNTRIES = ("DE", "FR", "NL", "PL", "ES", "IT", "SE", "DK", "PT", "AT")
SCHEMA = (
    "id BIGINT NOT NULL, at TIMESTAMP NOT NULL, user STRING NOT NULL, kind STRING NOT NULL, country STRING NOT NULL, "
    "amount DOUBLE NOT NULL, quantity INT NOT NULL, mobile BOOLEAN NOT NULL, session STRING, referrer STRING"
)
COLUMNS = tuple(column.split()[0] for column in SCHEMA.split(", "))


@dataclass(frozen=True)
class Message:
    """A record; ``stamp_ms`` is the timestamp of the source, in milliseconds since 1970."""

    partition: int
    key: bytes
    value: bytes
    stamp_ms: int


def messages(count: int, seed: int = 2026) -> Iterator[Message]:
    """Yield ``count`` records, spread over the partitions in turn."""
    chance = random.Random(seed)  # noqa: S311 -- the same records every time, no secrets
    for number in range(count):
        bits = chance.getrandbits(64)
        arrived = START_S + number * HOURS * 3600 // count
        late = 7_200 + bits % 10_800 if number % LATE_EVERY == LATE_EVERY - 1 else 0
        happened = max(START_S, arrived - late)
        day, second = divmod(happened - START_S, 86_400)
        hour, minute, second = second // 3600, second // 60 % 60, second % 60
        user = bits >> 8 & 0x3FFFF
        referrer = f'"/{KINDS[bits >> 30 & 7]}/{bits >> 33 & 0xFF}"' if bits & 3 else "null"
        value = (
            f'{{"id":{number},"at":"2024-03-{1 + day:02d}T{hour:02d}:{minute:02d}:{second:02d}Z","user":"u{user:06d}",'
            f'"kind":"{KINDS[bits >> 27 & 7]}","country":"{COUNTRIES[(bits >> 41) % 10]}",'
            f'"amount":{(bits >> 44 & 0xFFFF) / 100},"quantity":{1 + (bits >> 60)},'
            f'"mobile":{"true" if bits & 4 else "false"},"session":"{bits >> 32:08x}","referrer":{referrer}}}'
        )
        yield Message(number % PARTITIONS, b"u%06d" % user, value.encode(), arrived * 1000)
