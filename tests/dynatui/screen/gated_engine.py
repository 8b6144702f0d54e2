"""A fake engine that decodes one round for each permit of a test, and a clock that the test sets."""

import threading
import time
from collections.abc import Callable, Iterator

from msgspec import structs

from decoder.events import Event, Round
from decoder.prompts.prompt import AnyPrompt, as_prompt
from decoder.run.config import RunConfig
from decoder.session.steering import Stage, StageName, Steering, hold, takes_step
from dynatui.sources.engine import Loaded
from tests.dynatui.scripted_runs import run, tree_round

ROUNDS, LONGEST = 20, 64
PATIENCE_S = 30.0


class Gated:
    def __init__(self) -> None:
        self.gate = threading.Semaphore(0)

    def load(self, report: Callable[[str], None], progress: Callable[[str], None]) -> Loaded:
        del report, progress
        return Loaded(self.decode)

    def decode(self, prompt: AnyPrompt, config: RunConfig, steering: Steering) -> Iterator[Event]:
        del config
        yield run(prompt=as_prompt(prompt).text)
        for number in range(ROUNDS):
            while not self.gate.acquire(timeout=0.01):
                if steering.stopped:
                    return
            hold(steering)
            event = tree_round(number)
            bare = structs.replace(event, accepted=[], committed=[], text="")
            stages: tuple[tuple[StageName, Round], ...] = (("drafted", bare), ("verified", event))
            for name, known in stages:
                if takes_step(steering):
                    hold(steering, Stage(name, known))
            yield event
            if takes_step(steering):
                hold(steering, Stage("committed", event))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.002)
