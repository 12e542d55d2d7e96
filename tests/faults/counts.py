"""Counts over all schedules, printed at the end, and written to the file that TIDEMARK_FAULT_FIGURES names."""

import json
import os
from collections import Counter
from pathlib import Path

REACHED: Counter[str] = Counter()
HIT = "real processes hit"  # by a failpoint, or by a proxy that broke a connection or lost an answer
INJECTED = ("fault kill", "fault cut", "fault fail", "fault lose")


def summary() -> str:
    """All counts in one line, also written to the file; "" when no schedule ran."""
    if not REACHED["schedules"]:
        return ""
    figures = {
        "schedules": REACHED["schedules"],
        "faults injected": sum(REACHED[word] for word in INJECTED),
        "processes paused": sum(count for name, count in REACHED.items() if name.startswith("paused at")),
        "older attempts that woke late": REACHED["an older attempt woke after a newer had published"],
        HIT: REACHED[HIT],
        "rows missing": REACHED["rows missing"],
        "rows twice": REACHED["rows twice"],
    }
    path = os.environ.get("TIDEMARK_FAULT_FIGURES")
    if path:
        Path(path).write_text(json.dumps({**figures, "reached": dict(sorted(REACHED.items()))}, indent=1) + "\n")
    return ", ".join(f"{name}: {count:,}" for name, count in figures.items())
