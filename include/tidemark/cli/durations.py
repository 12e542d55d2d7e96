"""A duration as an option of a command."""

from datetime import timedelta
from typing import Any

import click

from tidemark.config.values import duration


class DurationType(click.ParamType[timedelta]):
    """A duration, written as in pipeline files."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        try:
            return duration(value)
        except ValueError as wrong:
            self.fail(f"{value!r} {wrong}", param, ctx)
