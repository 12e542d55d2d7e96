"""Turns templates into pages: no state of Tidemark in the browser, no scripts but its own and uPlot."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from tidemark.airflow.addresses import MOUNT, run_path
from tidemark.airflow.page.causes import PLACEHOLDERS, cause_of_text, steps_of
from tidemark.airflow.page.runs import strip_words
from tidemark.airflow.page.state_words import word
from tidemark.model.manifest import count_of, counted
from tidemark.text import readable

SHOWN = 200  # characters of a key or a value


def moment(value: datetime | None) -> str:
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z" if value else ""


def clock(value: datetime) -> str:
    """A time near now, short: of another day with its date."""
    value = value.astimezone(UTC)
    return f"{value:%H:%M}Z" if value.date() == datetime.now(UTC).date() else f"{value:%m-%d %H:%M}Z"


def field(value: datetime | None) -> str:
    """Return a time for a field of a form, in UTC."""
    return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M}" if value else ""


def ago(value: datetime | None) -> str:
    """Return how long ago a time was, in its two largest units."""
    return span(datetime.now(UTC) - value) if value else "not known"


def span(value: timedelta) -> str:
    seconds = max(0, int(value.total_seconds()))
    days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
    if days:
        return f"{days:,} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"


def size(count: int) -> str:
    """Return a number of bytes in the largest unit in which it is at least one."""
    unit = next((power for power in (3, 2, 1) if count >= 1024**power), 0)
    return f"{count / 1024**unit:,.1f} {('B', 'KiB', 'MiB', 'GiB')[unit]}" if unit else f"{count} B"


TEMPLATES = Environment(
    loader=PackageLoader("tidemark.airflow.page"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {
    "moment": moment,
    "clock": clock,
    "field": field,
    "ago": ago,
    "seconds": lambda seconds: span(timedelta(seconds=seconds)),
    "span": span,
    "shown": partial(readable, most=SHOWN),
    "number": "{:,}".format,
    "counted": counted,
    "count_of": count_of,
    "size": size,
    "strip_words": strip_words,
    "steps": steps_of,
    "not_as_rows": lambda hour: hour.without_rows.described(),
    "cause": cause_of_text,
    "word": word,
}
TEMPLATES.globals |= {"run_path": run_path, "placeholders": PLACEHOLDERS}


def page(request: Request, template: str, values: Mapping[str, Any], status: int = 200) -> HTMLResponse:
    root = str(request.scope.get("root_path", ""))
    html = TEMPLATES.get_template(template).render(root=root, airflow=root.removesuffix(MOUNT), **values)
    return HTMLResponse(html, status)
