"""Sends notices about pipelines: one when a problem begins, one when it is over.

A file records the sent notices, and is written after each delivery: a process that dies in between sends one twice, and
forgets none.
"""

import fcntl
import json
import shlex
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tidemark.errors import ConfigurationError, NotDone, Unavailable
from tidemark.model.json_values import NOT_IN_JSON, json_value
from tidemark.operations.status import PipelineProblem, State, Status, group_of, members_in_short

TIMEOUT_S = 30.0
WAIT_S = 50.0  # for another process to end: the next one starts after a minute
WEBHOOK = "TIDEMARK_WEBHOOK"  # the variable with the address
AT_ONCE = (State.BLOCKED, State.LOST, State.DAMAGED)  # the others may end by themselves: Airflow tries again

WORDS = {
    state.value for state in State
}  # a notice of an older version with another word is sent again under its new word


@dataclass(frozen=True, kw_only=True)
class Notice(PipelineProblem):
    """A problem of a pipeline that was first seen at ``since``; ``over``: the problem has ended.

    ``pipelines`` are all that share its cause; ``pipeline`` is the first of them.
    """

    pipeline: str
    pipelines: tuple[str, ...] = ()
    since: datetime
    told: bool = field(default=False, metadata=NOT_IN_JSON)
    over: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """Return a key that stays the same while the problem lasts, although numbers and ages in its text change. A
        cause that pipelines share is one problem.
        """
        if self.shared_cause is not None:
            return (self.shared_cause,)
        return self.pipeline, self.kind, self.manifest_id, self.place, self.cause

    def text(self) -> str:
        """Return the paragraph to read."""
        names = ", ".join(self.pipelines or [self.pipeline])
        if self.over:
            return f"{names}: no longer {self.kind}: {self.what}"
        return f"{names}: {self.kind}: {self.what}\nnext: {self.next_step}"

    def message(self) -> dict[str, Any]:
        """Return the notice for JSON; ``text`` is the key that chat systems show."""
        return {"text": self.text(), **json_value(self), "since": self.since.isoformat()}


@dataclass(frozen=True)
class GroupNotice:
    """One message for problems that begin, or are over, at several members of a group at once."""

    group: str
    in_short: str
    notices: tuple[Notice, ...]

    def text(self) -> str:
        return "\n".join([self.in_short, *(notice.text() for notice in self.notices)])

    def message(self) -> dict[str, Any]:
        of_members = [notice.message() for notice in self.notices]
        return {"text": self.text(), "pipeline": self.group, "over": self.notices[0].over, "notices": of_members}


Message = Notice | GroupNotice
Deliver = Callable[[Message], None]
KnownNotices = dict[tuple[object, ...], Notice]


def deliver_by_command(command: str) -> Deliver:
    """Return a function that runs a command for each notice, with the message on its standard input."""
    words = shlex.split(command)
    if not words:
        raise ConfigurationError("the command is empty", next_step="name a program: --command 'page-me --team data'")

    def deliver(notice: Message) -> None:
        try:
            done = subprocess.run(
                words, input=json.dumps(notice.message()), capture_output=True, text=True, timeout=TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _not_delivered(f"{words[0]}: {error}") from None
        if done.returncode != 0:
            raise _not_delivered(f"{words[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")

    return deliver


def deliver_by_webhook(url: str) -> Deliver:
    """Return a function that posts each message as JSON to an address, which is a secret and is never printed."""
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError("the webhook is not an HTTP address", next_step="begin it with https://")

    def deliver(notice: Message) -> None:
        body = json.dumps(notice.message()).encode()
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S):  # noqa: S310 - the scheme is checked above
                pass
        except urllib.error.HTTPError as error:
            with error:
                raise _not_delivered(f"the webhook answered {error.code} {error.reason}") from None
        except (OSError, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else type(error).__name__
            raise _not_delivered(f"the webhook does not answer: {reason}") from None

    return deliver


def _not_delivered(why: str) -> NotDone:
    return NotDone(
        f"a notice was not delivered: {why}", next_step="correct it; the next tidemark monitor notify sends it again"
    )


def notify(
    look: Callable[[], Sequence[Status]],
    memory: Path,
    deliver: Deliver,
    *,
    after: timedelta,
    is_gone: Callable[[Notice], bool],
    dry_run: bool,
) -> list[Message]:
    """Send notices of problems that are new or over in these pipelines. Return what was sent, or in a dry run would be.

    ``look`` returns the states. It is called when no other process sends any longer, so it sees newer states than any
    notice sent before. ``is_gone`` returns whether the subject of a notice, whose pipeline was not looked at, no longer
    exists.

    A problem that may end by itself is sent when it has lasted for ``after``. Problems of several members of a group
    are one message. Raises ``NotDone`` if a notice is not delivered; notices sent before stay recorded. Raises
    ``Unavailable`` if another process does not end.
    """
    sent: list[Message] = []
    with _only_one(memory):
        statuses = look()
        now = datetime.now(UTC)
        looked_at = {status.pipeline_name: status for status in statuses}
        kept_notices = [kept for kept in _read(memory) if kept["kind"] in WORDS]
        known = {notice.key: notice for notice in map(_notice_from_json, kept_notices)}

        problems = _one_for_each_cause(notice for status in statuses for notice in _notices(status, now))
        known |= {key: notice for key, notice in problems.items() if key not in known}
        if not dry_run:
            _write(memory, known)  # store since when each is known, even if a delivery fails
        due: list[Notice] = []
        for key, kept in list(known.items()):
            if key not in problems and _is_over(kept, looked_at, is_gone):
                if kept.told:
                    due.append(replace(kept, over=True))
                else:
                    known.pop(key)
        for key, notice in problems.items():
            kept = known[key]
            if not kept.told and (notice.kind in AT_ONCE or now - kept.since >= after):
                due.append(replace(notice, since=kept.since))
        for message in _folded(due, statuses):
            sent.append(message)
            if not dry_run:
                deliver(message)
                for notice in message.notices if isinstance(message, GroupNotice) else [message]:
                    known.pop(notice.key, None)
                    if not notice.over:
                        known[notice.key] = replace(notice, told=True)
                _write(memory, known)
        if not dry_run:
            _write(memory, known)
    return sent


def _folded(due: Sequence[Notice], statuses: Sequence[Status]) -> list[Message]:
    """Return the messages for these notices. Those of a group's members become one for problems that begin, and one for
    those that are over.
    """
    folds: dict[object, list[Notice]] = {}
    for notice in due:
        groups = {group_of(name) for name in notice.pipelines or [notice.pipeline]}
        group = groups.pop() if len(groups) == 1 else None
        folds.setdefault(notice.key if group is None else (group, notice.over), []).append(notice)
    messages: list[Message] = []
    for notices in folds.values():
        group = group_of(notices[0].pipeline)
        if group is None or len(notices) == 1:
            messages += notices
        else:
            messages.append(GroupNotice(group, members_in_short(group, statuses), tuple(notices)))
    return messages


def _is_over(notice: Notice, looked_at: Mapping[str, Status], is_gone: Callable[[Notice], bool]) -> bool:
    """Return whether a problem has ended in each pipeline that had it. It has not if a pipeline was not looked at: the
    source may not answer, or a file may be wrong.
    """
    for name in notice.pipelines or [notice.pipeline]:
        status = looked_at.get(name)
        if notice.kind in status.unseen if status is not None else not is_gone(replace(notice, pipeline=name)):
            return False
    return True


def _notices(status: Status, now: datetime) -> Iterator[Notice]:
    name = status.pipeline_name
    return (Notice(**vars(problem), pipeline=name, pipelines=(name,), since=now) for problem in status.problems)


def _one_for_each_cause(notices: Iterable[Notice]) -> KnownNotices:
    """Return the notices by their keys. One cause of several pipelines is one notice, with all of their names."""
    by_key: KnownNotices = {}
    for notice in notices:
        first = by_key.setdefault(notice.key, notice)
        if notice.pipeline not in first.pipelines:
            names = (*first.pipelines, notice.pipeline)
            by_key[notice.key] = replace(first, what=first.shared_cause or first.what, pipelines=names)
    return by_key


@contextmanager
def _only_one(memory: Path) -> Iterator[None]:
    """Hold a lock: two processes at once would send the same notices."""
    memory.parent.mkdir(parents=True, exist_ok=True)
    with memory.with_suffix(".lock").open("a") as lock:
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"another tidemark monitor notify has been at work for more than {WAIT_S:.0f} s",
                        next_step="nothing was told; look for a process that hangs, end it, then repeat the command",
                    ) from None
            time.sleep(0.1)
        yield


def _write(memory: Path, known: KnownNotices) -> None:
    kept = [{**asdict(notice), "since": notice.since.isoformat()} for notice in known.values()]
    new = memory.with_suffix(".new")
    new.write_text(json.dumps(kept, indent=1))
    new.replace(memory)


def _read(file: Path) -> list[dict[str, Any]]:
    try:
        kept: list[dict[str, Any]] = json.loads(file.read_text())
        return kept
    except FileNotFoundError:
        return []
    except ValueError:
        raise ConfigurationError(
            f"{file} is damaged",
            next_step=f"remove it: rm {shlex.quote(str(file))}; notices that were sent are then sent again",
        ) from None


def _notice_from_json(kept: dict[str, Any]) -> Notice:
    since = datetime.fromisoformat(kept["since"]).astimezone(UTC)
    names = tuple(kept.get("pipelines", ()))
    return Notice(**{**kept, "kind": State(kept["kind"]), "since": since, "pipelines": names})
