"""Every kind of sink in one pipeline, whose processes are killed again and again: in the end each sink is exact.

``TIDEMARK_KILLS_SEED`` repeats the draws of a failure. The moments depend on the machine, so kills may happen
elsewhere.
"""

import os
import random
import secrets
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.faults import counts
from tests.worlds.all_sinks_world import KINDS, AllSinksWorld
from tests.worlds.world import Command, wait_ended
from tidemark.failpoints import FAILPOINTS

Make = Callable[..., AllSinksWorld]
SEED = "TIDEMARK_KILLS_SEED"
STEPS_PER_KILL = 4  # at most: some commands end before they are hit
LOOK_EVERY = 10  # kills


class Killer:
    """Starts commands and kills them at random. It prints each step, which pytest shows after a failure."""

    def __init__(self, world: AllSinksWorld, seed: int) -> None:
        self.world = world
        self.dice = random.Random(seed)
        self.kills = 0
        self.runs = 0
        self.time_of_a_run("first")  # which creates tables, and may start the server of commands
        self.longest = self.time_of_a_run("second")
        print(f"{SEED}={seed}, a run takes {self.longest:.1f} s")

    def time_of_a_run(self, run_key: str) -> float:
        self.world.produce(20)
        begin = time.monotonic()
        assert self.world.start("run", "demo", "--run-key", run_key).wait() == 0
        return time.monotonic() - begin

    def kill(self, times: int) -> None:
        for _ in range(times * STEPS_PER_KILL):
            before = self.kills // LOOK_EVERY
            self.step()
            if self.kills // LOOK_EVERY > before:
                self.world.assert_whole()
            if self.kills >= times:
                return
        raise AssertionError(f"only {self.kills} of {times} kills in {times * STEPS_PER_KILL} steps")

    def step(self) -> None:
        """Something changes; then one command or two at once work, and each is killed, if it has not ended before."""
        manifests = self.world.manifests()
        unfinished = sum(manifest["state"] != "done" for manifest in manifests)
        if self.dice.random() < (0.1 if unfinished else 0.8):
            self.world.produce(self.dice.randint(5, 50), bad_every=self.dice.choice((0, 7)))
        # A topic that a replay has not reached takes no rows of other code, until a person appends them again.
        half_replayed = any(shown["behind"] for manifest in manifests for shown in manifest["publications"])
        if self.dice.random() < 0.2 and not half_replayed:
            self.world.change_code()
            self.world.write_pipeline()
        ids = [manifest["id"] for manifest in manifests]
        for work in [self.begin(ids, unfinished) for _ in range(self.dice.choice((1, 2, 2)))]:
            self.end(*work)

    def begin(self, manifests: list[int], unfinished: int) -> tuple[Command, float | None]:
        """A command, and after how many seconds it is to be killed; None when a failpoint does it."""
        words = self.words(manifests, unfinished)
        if self.dice.random() < 0.5:
            point = f"{self.dice.choice(FAILPOINTS)}:kill9@{self.dice.randint(1, 2)}"
            counts.REACHED[counts.HIT] += self.forget_failpoints()
            print(f"{self.kills}: {' '.join(words)}, {point}")
            return self.world.start(*words, failpoint=point), None
        moment = self.dice.uniform(0, 1.2 * self.longest)
        print(f"{self.kills}: {' '.join(words)}, killed after {moment:.2f} s")
        return self.world.start(*words), moment

    def forget_failpoints(self) -> int:
        """Let failpoints act that have acted before; returns how many had."""
        files = list(self.world.folder.glob("_failpoints/*"))
        for file in files:
            file.unlink()
        return len(files)

    def words(self, manifests: list[int], unfinished: int) -> list[str]:
        match self.dice.choice(("run", "run again", "replay", *(["retry"] * 3 if unfinished else ["run"]))):
            case "run":
                self.runs += 1
                return ["run", "demo", "--run-key", str(self.runs)]
            case "run again":
                return ["run", "demo", "--run-key", str(self.runs)]
            case "replay":
                manifest = str(self.dice.choice(manifests))
                return ["replay", "demo", "--manifest", manifest, *self.dice.choice(([], ["--take-over"]))]
            case _:
                return ["retry", "demo"]

    def end(self, command: Command, moment: float | None) -> None:
        try:
            command.wait(moment)
        except subprocess.TimeoutExpired:
            command.kill()
            counts.REACHED[counts.HIT] += 1
        ended = wait_ended(command)
        self.kills += ended.returncode == -signal.SIGKILL
        print(f"  {ended.returncode} {ended.stderr.strip()[-300:] if ended.returncode == 1 else ''}")
        assert ended.returncode in (0, 1, -signal.SIGKILL), ended.stderr
        assert "Traceback" not in ended.stderr, ended.stderr


@pytest.mark.thorough
def test_killed_at_random_every_sink_of_a_pipeline_ends_exact(make_all_sinks_world: Make) -> None:
    ends_exact(make_all_sinks_world, 4)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(4))  # several workers share them
def test_killed_at_random_40_times_every_sink_of_a_pipeline_ends_exact(make_all_sinks_world: Make, part: int) -> None:
    ends_exact(make_all_sinks_world, 40 // 4)


def ends_exact(make_all_sinks_world: Make, kills: int) -> None:
    # Without DynamoDB, whose calls take ten times as long; test_kills.py kills over it.
    world = make_all_sinks_world(kinds=KINDS, expects=True)
    killer = Killer(world, int(os.environ.get(SEED, 0)) or secrets.randbelow(10**6))
    killer.kill(kills)
    world.ok("retry", "demo")
    world.ok("run", "demo")
    world.assert_complete()
