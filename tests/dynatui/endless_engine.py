"""A fake engine that decodes endlessly and fast and obeys every command, for tests with random or hostile input.

`script` returns a Python program that shows the engine in a terminal; additional lines can make it fail.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from decoder.analysis.metrics import fold
from decoder.events import End, Event, Knob, Start, Summary
from decoder.prompt import AnyPrompt, as_prompt
from decoder.run.config import RunConfig
from decoder.session.steering import Stage, Steering, hold, takes_step
from dynatui.sources.engine import Loaded
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
run.load_with_times = lambda session: engine.load
code = run.watch(Session(prompts, models, record=record))
{after}
sys.exit(code)
"""


def script(before: str = "", after: str = "") -> str:
    """Text of a program that shows the engine; `before` may set `prompts`, `models`, `record` and `engine`."""
    return _SCRIPT.format(before=before, after=after)


@dataclass
class EndlessEngine:
    """A fake engine that decodes `rounds` rounds per prompt; by default practically endless."""

    rounds: int = 1_000_000
    pause_s: float = 0.004
    foreign: Callable[[Event], Event] = lambda event: event
    """Changes each event, for example to that of a hostile model."""
    report: str = "loading nothing"

    def load(self, report: Callable[[str], None], _progress: Callable[[str], None]) -> Loaded:
        report(self.report)
        return Loaded(self.decode)

    def decode(self, prompt: AnyPrompt, config: RunConfig, steering: Steering) -> Iterator[Event]:
        """Events of one run; it reports turned knobs, holds at stages, and ends when stopped."""
        del config
        told: list[Event] = []
        for event in self._run(prompt, steering):
            told.append(self.foreign(event))
            yield told[-1]
        yield Summary(methods=fold(told).figures())

    def _run(self, prompt: AnyPrompt, steering: Steering) -> Iterator[Event]:
        yield run(prompt=as_prompt(prompt).text)
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
