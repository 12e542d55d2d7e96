"""The types of single values of a pipeline file: durations, sizes, schedules, times, servers, layouts.

Each function takes a value from the file, and returns the checked value or raises an error of ``wrong``. The message
continues a line such as "event_time.allowed_lateness:", so it starts with "must", "is" or "has".
"""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from croniter import CroniterBadCronError, CroniterBadDateError, croniter  # type: ignore[import-untyped]
from pydantic import ByteSize, TypeAdapter
from pydantic_core import PydanticCustomError

from tidemark.kinds import STORES
from tidemark.model.reasons import SHARE_PATTERN
from tidemark.storage.base import is_address
from tidemark.text import with_nearest

NAME_PATTERN: Final = "^[a-z][a-z0-9_-]{0,62}$"
DURATION_PATTERN: Final = r"^(\d{1,9}[smhd]|P(?=.)(\d{1,9}D)?(T(?=.)(\d{1,9}H)?(\d{1,9}M)?(\d{1,9}S)?)?)$"
PARTITION_PATTERN: Final = "^(0|[1-9][0-9]{0,8})$"
SIZE_PATTERN: Final = r"^[0-9](_?[0-9]){0,17} ?(kB|MB|GB|KiB|MiB|GiB)$"

PRESETS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@quarterly": "0 0 1 */3 *",
    "@yearly": "0 0 1 1 *",
}
LONGEST: Final = timedelta(days=3650)
LARGEST: Final = 2**50
_BYTES: Final = TypeAdapter(ByteSize)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_CRON_FIELDS: Final = (
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of month", 1, 31),
    ("month", 1, 12),
    ("day of week", 0, 7),
)
_MOST_CRON_FIELDS: Final = 7  # seconds and years may follow
_FIRST_DAY: Final = datetime(1969, 12, 31, tzinfo=UTC)
_YEARS: Final = 130  # croniter knows the years 1970 to 2099
_LAYOUT_PARTS: Final = re.compile(r"%.?|\{[^{}]*\}|[^%{}]+|[{}]")
_TIMES: Final = ("%Y", "%m", "%d", "%H")
_PLACES: Final = ("{stream}", "{pipeline}")
_NO_STORES: Final = {"gs": "Google's storage, which Tidemark cannot write to: use one of the others"}


def wrong(message: str) -> PydanticCustomError:
    """Return the error of one value; the message is for the author of the file."""
    return PydanticCustomError("tidemark", "{message}", {"message": message})


def name(value: str) -> str:
    if not re.fullmatch(NAME_PATTERN[1:-1], value):
        raise wrong("must be 1 to 63 lower-case letters, digits, _ or -, and start with a letter")
    return value


def topic(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", value) or value in (".", ".."):
        raise wrong("must be a topic name: 1 to 249 letters, digits, dots, _ or -")
    return value


def pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as problem:
        raise wrong(f"is not a regular expression: {problem}") from None
    return text


def connection_id(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", value):
        raise wrong("must be the id of an Airflow connection: letters, digits, _, - and dots")
    return value


def table(value: str) -> str:
    """Return a table of PostgreSQL as ``schema.name``; lower case only, so that no name needs quotes."""
    if not re.fullmatch(r"([a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,62}", value):
        raise wrong("must be a table such as prices or sales.prices: lower-case letters, digits and _")
    return value if "." in value else f"public.{value}"


def servers(value: str) -> str:
    """Return ``host:port``, or several with commas between them, without spaces."""
    addresses = [address.strip() for address in value.split(",")]
    for address in addresses:
        match = re.fullmatch(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})", address)
        if match is None or not 1 <= int(match[1]) <= 65535:
            raise wrong("must be host:port, or several separated by commas, such as broker-1:9092,broker-2:9092")
    return ",".join(addresses)


def duration(value: object) -> timedelta:
    """Return a duration in seconds, minutes, hours or days, or in ISO 8601 without months and years, whose length
    varies.
    """
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str) or not re.fullmatch(DURATION_PATTERN[1:-1], value):
        raise wrong("must be a duration with its unit, such as 90s, 15m, 1h, 2d or PT1H30M")
    seconds = sum(int(number) * _SECONDS[unit] for number, unit in re.findall(r"(\d+)([smhd])", value.lower()))
    if seconds > LONGEST.total_seconds():
        raise wrong(f"must not be longer than {LONGEST.days}d")
    return timedelta(seconds=seconds)


def size(value: object) -> int:
    """Return a number of bytes, from a whole number or one with a unit; MiB is 1024 * 1024, MB is 1,000,000."""
    if isinstance(value, str) and re.fullmatch(SIZE_PATTERN[1:-1], value):
        # Pydantic converts by way of a float, which is exact up to the largest allowed size.
        value = int(_BYTES.validate_python(value.replace("_", "")))
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong("must be a number of bytes, or one with a unit: kB, MB, GB, KiB, MiB or GiB, such as 512MiB")
    if not 1 <= value <= LARGEST:
        raise wrong(f"must be 1 to {LARGEST} bytes")
    return value


def dead_letters(value: object) -> int | str:
    """Return a number of records, or a share of them such as 0.1%."""
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if is_number or (isinstance(value, str) and re.fullmatch(SHARE_PATTERN[1:-1], value)):
        return value  # type: ignore[return-value]
    raise wrong("must be a number of records, 0 or more, or a share of them with a percent sign, such as 0.1% or 5%")


def day(value: object) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        if not isinstance(value, str) or len(value) != len("2024-01-01"):
            raise ValueError
        return date.fromisoformat(value)
    except ValueError:
        raise wrong("must be a day such as 2024-01-31") from None


def group(value: str) -> str:
    if not 1 <= len(value) <= 255 or not value.isprintable():
        raise wrong("must be the name of a consumer group: 1 to 255 characters that can be printed")
    return value


def partition(value: object) -> int:
    """Return the number of a partition. Keys of a pipeline file are text: ``00`` is refused, because it would be a
    second ``0``.
    """
    if not re.fullmatch(PARTITION_PATTERN[1:-1], str(value)):
        raise wrong("must be the number of a partition, such as 0")
    return int(str(value))


def moment(value: object, words: tuple[str, ...], shapes: tuple[str, ...] = ()) -> datetime:
    """Return a time with a zone, in UTC. ``words`` and ``shapes`` are allowed in its place, and are shown in the
    message.
    """
    choices = (*words, "a time such as 2024-01-31T00:00:00Z", *shapes)
    choice = f"must be {' or '.join(filter(None, (', '.join(choices[:-1]), choices[-1])))}"
    try:
        when = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        if when.tzinfo is not None:
            return when.astimezone(UTC)
    except (ValueError, OverflowError):
        raise wrong(with_nearest(choice, str(value), words)) from None
    raise wrong(f"{choice}; its zone is missing, add Z or an offset such as +01:00")


def timezone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ValueError, OSError, LookupError):
        message = "must be an IANA zone such as UTC or Europe/Berlin"
        raise wrong(with_nearest(message, value, available_timezones())) from None
    return value


def schedule(value: str) -> str:
    """Return one of Airflow's presets, or a cron expression that Airflow accepts and that is due at some time."""
    try:
        croniter(cron(value), _FIRST_DAY, max_years_between_matches=_YEARS).get_next()
    except CroniterBadDateError:
        raise wrong("is never due: none of its months has such a day") from None
    except CroniterBadCronError:
        raise wrong(_wrong_preset(value) if value.startswith("@") else _wrong_cron(value)) from None
    return value


def cron(schedule: str) -> str:
    """Return the schedule as a cron expression: croniter does not know all of Airflow's presets."""
    return PRESETS.get(schedule, schedule)


def _wrong_preset(value: str) -> str:
    return f"{with_nearest('is not a preset', value, PRESETS, listed=True)}, or a cron expression"


def _wrong_cron(value: str) -> str:
    """Return the problem of a cron expression: the first part of a field that is wrong by itself, if there is one."""
    fields = value.split()
    if not len(_CRON_FIELDS) <= len(fields) <= _MOST_CRON_FIELDS:
        return f"must be a preset ({', '.join(PRESETS)}) or five cron fields: minute hour day month weekday"
    for index, (field, low, high) in enumerate(_CRON_FIELDS):
        for part in fields[index].split(","):
            alone = ["*"] * len(_CRON_FIELDS)
            alone[index] = part
            if not croniter.is_valid(" ".join(alone)):
                return f'has a {field} "{part}" that is not allowed: {low} to {high}, *, a-b, a,b and */n are'
    return "is not a cron expression that Airflow takes"


def root(value: str) -> str:
    """Return a folder of this machine unchanged, or an address in a store without a slash at the end."""
    scheme, is_url, _ = value.partition("://")
    if is_url:
        return _in_store(scheme, value.rstrip("/"))
    if not value.strip("/. ") or "\0" in value or value.startswith("~"):
        raise wrong("must be a folder of its own, such as lake, /data/lake or ${HOME}/lake")
    return value


def _in_store(scheme: str, address: str) -> str:
    if scheme not in STORES:
        stores = STORES.modules("address").values()
        places = ", ".join(store.EXAMPLE for store in stores)
        known = _NO_STORES.get(scheme, "not known")
        hint = "".join(f"; write {store.EXAMPLE}" for store in stores if scheme in store.OTHER_SCHEMES)
        raise wrong(f'must be a folder of this machine, or in a store: {places}; "{scheme}://" is {known}{hint}')
    problem = STORES.problem_with(scheme) or STORES.module(scheme, "address").problem_with_address(address)
    if problem:
        raise wrong(str(problem))
    return address


def endpoint(value: str) -> str:
    """Return the address of a store, which has no user, password or query."""
    if not is_address(value):
        # It does not start with "must": then the message would show the value, which may hold keys.
        raise wrong("is not an address such as https://HOST:PORT, or holds user, password or query")
    return value


def layout(value: str) -> str:
    """Return a folder pattern from coarse to fine, such as ``raw/{stream}/%Y/%m/%d``; times in it are UTC.

    It must contain ``{stream}``, because two topics never share a folder.
    """
    if len(value) > 200:
        raise wrong("must not be longer than 200 characters")
    seen: list[str] = []
    for segment in value.split("/"):
        seen += _layout_segment(segment, seen)
    if "{stream}" not in seen:
        raise wrong("must hold {stream}, so that two topics never share a folder")
    return value


def _layout_segment(segment: str, seen: list[str]) -> list[str]:
    """Check one folder of a layout and return its placeholders, such as ``%H`` or ``{stream}``. ``seen`` has those of
    the folders before it."""
    if segment in ("", ".", ".."):
        raise wrong("must be folders with / between them, none empty, none . or .., no / at either end")
    if segment[0] in "_.":
        raise wrong(f'has a folder "{segment}" that readers skip: none may start with _ or a dot')
    if segment.count("{") > 1:
        raise wrong(
            f'has two names in the folder "{segment}": give each a folder of its own; joined names can be equal'
        )
    placeholders: list[str] = []
    for part in _LAYOUT_PARTS.findall(segment):
        if part[0] == "%" and part not in _TIMES:
            raise wrong(f'has "{part}" that is not allowed: %Y, %m, %d and %H are')
        if part[0] in "{}" and part not in _PLACES:
            raise wrong(with_nearest(f'has "{part}" that is not allowed', part, _PLACES, listed=True))
        if part[0] not in "%{}" and not re.fullmatch(r"[A-Za-z0-9._=+@-]+", part):
            raise wrong(f'has "{part}": only letters, digits and . _ - = + @ are allowed beside the times and names')
        if part in _TIMES[1:]:
            coarser = _TIMES[_TIMES.index(part) - 1]
            if coarser not in (*seen, *placeholders):
                raise wrong(f"is not from coarse to fine: {part} needs {coarser} before it")
        if part[0] in "%{":
            placeholders.append(part)
    return placeholders
