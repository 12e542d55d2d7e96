"""Writes the structured lines of ``lifecycle/events.py`` into Airflow's task logs.

Airflow writes its logs as JSON by structlog; the key ``event`` has the name of the event. ``log_lines`` has the lines
for people.
"""

import structlog  # Airflow's tasks log through it

from tidemark.lifecycle.events import LogLine


def emit(line: LogLine) -> None:
    structlog.get_logger("tidemark").info(line.event.value, **line.values)
