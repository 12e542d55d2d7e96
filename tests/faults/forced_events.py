"""A schedule for each event that random schedules must be able to reach: the same moves, chosen instead of drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from hypothesis import strategies as st

from tests.faults.actors import Fault
from tests.faults.state_machine import Happening, Move, Schedules, Verb

ASKED_FIRST = ("kafka open_transactions", 1)


@dataclass
class Chosen:
    """Answers in place of ``st.DataObject``, in the order in which the machine asks."""

    answers: list[object]

    def draw(self, _: object) -> object:
        return self.answers.pop(0)


@dataclass
class Moved:
    """One move, in the form that ``Schedules.go_on`` expects. ``pick`` selects the actor or the manifest."""

    move: Move
    answers: Sequence[object] = ()
    pick: int = 0


@dataclass
class Forced:
    """A forced schedule. ``begin`` has the settings that differ from those with which most schedules begin."""

    moves: Sequence[Moved]
    begin: Mapping[str, object] = field(default_factory=dict)

    def play(self, machine: Schedules) -> None:
        """From the beginning to the end of the schedule; all that must be true is looked at after each move."""
        usual = {"gaps": "transactions", "loss": "fail", "start": "earliest", "records": 4, "before": 6}
        usual |= {"expects": False, "defers": False, "second": ""}
        try:
            machine.begin(**{**usual, **self.begin})
            machine.what_must_be_true()
            for moved in self.moves:
                chosen = Chosen([*moved.answers])
                machine.go_on(data=cast("st.DataObject", chosen), move=moved.move, pick=moved.pick)
                machine.what_must_be_true()
                assert chosen.answers == [], f"{moved} was another move"
        except BaseException:
            machine.over = True
            raise
        finally:
            machine.teardown()


def source(which: Happening, size: int = 9) -> Moved:
    return Moved(Move.SOURCE, (which, 0, 0, size))


def call(verb: Verb, pick: int = 0) -> Moved:
    return Moved(Move.CALL, (verb, None), pick)


def strike(fault: Fault, operations: int) -> Moved:
    return Moved(Move.STRIKE, (fault, 0, operations))


def finish(pick: int = 0) -> Moved:
    """Of the actors, the first one unless it is said otherwise."""
    return Moved(Move.FINISH, (), pick)


PLANNED = (finish(),)
AT_WORK = (*PLANNED, call(Verb.PROCESS))
SIDE_BY_SIDE = (*AT_WORK, call(Verb.RIVAL, 1))
PUBLISHED = (*AT_WORK, finish())
RUN = Moved(Move.RUN)
LOSE_DATABASE = Moved(Move.LOSE_DATABASE, (None,))
RECREATED = (*PLANNED, source(Happening.RECREATION), call(Verb.PLAN), finish())
BETWEEN = Moved(Move.BETWEEN, (None, ASKED_FIRST, [Happening.RECREATION], 0, 0, 9))
BLOCKED = (*AT_WORK, finish())
RESTORED = (RUN, LOSE_DATABASE, source(Happening.RECORDS), RUN, LOSE_DATABASE)

FORCED: Mapping[str, Forced] = {
    "an older attempt woke after a newer had published": Forced((*AT_WORK, call(Verb.OVERTAKE, 1), finish())),
    "an older attempt went on beside a newer one": Forced((*SIDE_BY_SIDE, finish())),
    "a newer attempt went on beside an older one": Forced((*SIDE_BY_SIDE, finish(1))),
    "fault kill": Forced((*AT_WORK, strike(Fault.KILL, 0))),
    "fault cut": Forced((*AT_WORK, strike(Fault.CUT, 0))),
    "fault fail": Forced((*AT_WORK, strike(Fault.FAIL, 3))),
    "fault lose": Forced((*AT_WORK, strike(Fault.LOSE, 3))),
    "process ended superseded": Forced((*AT_WORK, call(Verb.OVERTAKE, 1), finish())),
    "process said Fenced": Forced((*SIDE_BY_SIDE, finish())),
    "replay ended unchanged": Forced((*PUBLISHED, call(Verb.REPLAY), finish())),
    "replay ended published": Forced((*PUBLISHED, source(Happening.CODE), call(Verb.REPLAY), finish())),
    "plan said TopicChanged": Forced(RECREATED),
    "accept ended well": Forced((*RECREATED, Moved(Move.CALL, (Verb.ACCEPT, None)), finish())),
    "a transaction was aborted": Forced((source(Happening.BEGIN), source(Happening.ABORT))),
    "a transaction was committed": Forced((source(Happening.BEGIN), source(Happening.COMMIT))),
    "schedules with two sinks": Forced(PUBLISHED, {"second": "files"}),
    "source: retention": Forced((source(Happening.RETENTION, 3),)),
    "source: truncation": Forced((source(Happening.TRUNCATION, 3),)),
    "source: recreation": Forced((source(Happening.RECREATION),)),
    "a plan stood at kafka open_transactions": Forced((*PLANNED, BETWEEN)),
    "between two questions of a plan: recreation": Forced((*PLANNED, BETWEEN)),
    "a truncation was accepted with unread offsets": Forced((*PLANNED, Moved(Move.CUT_UNREAD, (0, 0, 5)))),
    "plan said DataLost": Forced(
        (*PLANNED, source(Happening.RECORDS), source(Happening.RETENTION), call(Verb.PLAN), finish())
    ),
    "process said TopicChanged": Forced((*PLANNED, source(Happening.RECREATION), call(Verb.PROCESS), finish())),
    "process said Blocked": Forced(BLOCKED, {"expects": True}),
    "retry said Blocked": Forced((*BLOCKED, call(Verb.PROCESS), finish()), {"expects": True}),
    "allow ended well": Forced((*BLOCKED, call(Verb.ACCEPT), finish()), {"expects": True}),
    "retry ended published": Forced(
        (*BLOCKED, source(Happening.CODE), call(Verb.PROCESS), finish()), {"expects": True}
    ),
    "a blocked manifest was published as it is": Forced(
        (*BLOCKED, call(Verb.ACCEPT), finish(), call(Verb.PROCESS), finish()), {"expects": True}
    ),
    "repair ended well": Forced((*PLANNED, call(Verb.REPAIR), finish())),
    "sweep ended well": Forced((*PUBLISHED, call(Verb.SWEEP), finish())),
    "adopt ended well": Forced(RESTORED, {"records": 2}),
    "restored, and the lake knew more": Forced(RESTORED, {"records": 2}),
}


def machine(**given: Any) -> Schedules:
    """A machine on these services: ``machine(postgres=.., template=.., reached=.., second=..)``."""
    return type("Chosen", (Schedules,), given)()
