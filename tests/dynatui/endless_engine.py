"""An engine that decodes for ever, fast, and obeys every command: what the random and the unkind tests are run on.

`script` gives a Python program that shows it, for a terminal of its own; lines added to that make it fail on purpose.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from decoder.analysis.metrics import fold
from decoder.events import End, Event, Knob, Start, Summary
from decoder.run.config import RunConfig
from decoder.session.steering import Stage, Steering, hold, takes_step
from tests.dynatui.scripted_runs import plain_round, run, tree_round

_SCRIPT = """
import os, sys, threading, time
import dynatui.screen.app
from pathlib import Path
from decoder.errors import DeviceError, ModelError
from dynatui.screen import run
from dynatui.session import Models, Session, View
from tests.dynatui.endless_engine import EndlessEngine
prompts, models, record, engine = ("one", "two", "three"), Models("big", "small"), None, EndlessEngine()
{before}
run.load_engine = lambda session: engine.load
code = run.watch(Session(prompts, models, record=record))
{after}
sys.exit(code)
"""


def script(before: str = "", after: str = "") -> str:
    """A program that shows the engine: `before` may set `prompts`, `models`, `record` and `engine`."""
    return _SCRIPT.format(before=before, after=after)


@dataclass
class EndlessEngine:
    """Rounds without end, or so many a prompt."""

    rounds: int = 1_000_000
    pause_s: float = 0.001
    """Between two rounds."""
    foreign: Callable[[Event], Event] = lambda event: event
    """What a hostile model makes of each event."""
    report: str = "loading nothing"

    def load(
        self, report: Callable[[str], None], _progress: Callable[[str], None]
    ) -> Callable[[str, RunConfig, Steering], Iterator[Event]]:
        """Is ready at once."""
        report(self.report)
        return self.decode

    def decode(self, prompt: str, config: RunConfig, steering: Steering) -> Iterator[Event]:
        """One run; turned knobs are told, stages are held, a stop ends it."""
        del config
        told: list[Event] = []
        for event in self._run(prompt, steering):
            told.append(self.foreign(event))
            yield told[-1]
        yield Summary(methods=fold(told).figures())

    def _run(self, prompt: str, steering: Steering) -> Iterator[Event]:
        yield run(prompt=prompt)
        yield Start(method="dynatree", prefill_s=0.01)
        yield Start(method="ar", prefill_s=0.01)
        turned = 0
        for number in range(self.rounds):
            hold(steering)
            if steering.stopped:
                break
            for turn in steering.turns[turned:]:
                yield Knob(
                    method="dynatree",
                    round=number,
                    name=turn.name,
                    old=0.5,
                    new=turn.value,
                    source="user",
                    turn=turn.number,
                )
            turned = len(steering.turns)
            yield from self._round(number, steering)
            time.sleep(self.pause_s)
        yield from (End(method=name, reason="stopped") for name in ("dynatree", "ar"))

    def _round(self, number: int, steering: Steering) -> Iterator[Event]:
        drafted: Any = self.foreign(tree_round(number, text=f" w{number}"))
        if takes_step(steering):
            hold(steering, Stage("drafted", structs.replace(drafted, accepted=[], committed=[], text="")))
        yield drafted
        yield plain_round("ar", number)
