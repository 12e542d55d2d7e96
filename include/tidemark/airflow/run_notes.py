"""The notes of ``plan`` for the scheduler, as an XCom: a label for each mapped task, the run's note and its links.

No imports: every process of Airflow loads this with the plugin.
"""

from typing import Any

KEY = "tidemark"
LONGEST_NOTE = 1000  # characters; the size of Airflow's column


def cut(text: str, most: int) -> str:
    """Return the text, cut to at most ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 3]} .."


def note_of(text: str, links: list[str]) -> str:
    """Return a note with whole links at its end. Links fit below half of the longest note, or below a shorter text."""
    room = LONGEST_NOTE - min(len(text), LONGEST_NOTE // 2) - 1
    kept: list[str] = []
    for link in links:
        room -= len(link) + 1
        if room < 0:
            break
        kept.append(link)
    below = "\n".join(kept)
    above = cut(text, LONGEST_NOTE - len(below) - 2) if below else cut(text, LONGEST_NOTE)
    return "\n\n".join(filter(None, [above, below]))  # Airflow shows it as Markdown: two paragraphs


def push_labels(task_context: Any, labels: list[str], note: list[str], links: list[str]) -> None:
    task_context["ti"].xcom_push(KEY, {"labels": labels, "note": "\n".join(note), "links": links})
