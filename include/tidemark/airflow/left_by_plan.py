"""What ``plan`` leaves for the scheduler, as an XCom: a label for each mapped task, and the note of the run.

No imports: every process of Airflow loads this with the plugin.
"""

from typing import Any

KEY = "tidemark"


def cut(text: str, most: int) -> str:
    """The text, or its beginning, in at most so many characters."""
    return text if len(text) <= most else f"{text[: most - 3]} .."


def leave(task_context: Any, labels: list[str], note: list[str]) -> None:
    task_context["ti"].xcom_push(KEY, {"labels": labels, "note": "\n".join(note)})
