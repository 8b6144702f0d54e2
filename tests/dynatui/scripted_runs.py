"""Helpers of the screen's tests: events of a run with knobs and a real tree, and a fake source that keeps commands."""

import math
from collections.abc import Iterable
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path

from msgspec import structs

from decoder.analysis.metrics import fold
from decoder.events import Draws, End, Event, Knob, Knobs, Round, Run, Start, Summary, Verification
from decoder.knobs import KnobName, RulesName
from decoder.methods.delayed import Delayed
from decoder.methods.dynatree import DynaTree
from decoder.run.config import RunConfig
from decoder.session.steering import Stage, Turn
from dynatui.render.ink import Row
from dynatui.render.scene import Scene
from dynatui.session import Models, Session
from dynatui.sources.source import Conditions
from dynatui.state.run_state import Prompt, Record, RunState, apply

HOSTILE = "\x1b]52;c;UFdORUQ=\x07\x1b[2J\x9b31m[bold]x[/bold]\u202e\r\x7f"


def run(methods: Iterable[str] = ("dynatree", "ar"), prompt: str = "Once upon") -> Run:
    parameters = {**asdict(DynaTree(window=3)), "branching": [1, 2, 3]}
    return Run(
        version="0.1.0",
        started_at="2026-01-01T00:00:00Z",
        target="books-16m",
        draft="books-1m",
        device="cpu",
        dtype="bfloat16",
        seed=0,
        prompt=prompt,
        prompt_tokens=[1, 2],
        max_new_tokens=64,
        methods={name: dict(parameters) if name == "dynatree" else {} for name in methods},
    )


def runs_of(events: Iterable[Event]) -> list[list[Event]]:
    found: list[list[Event]] = []
    for event in events:
        if isinstance(event, Run):
            found.append([])
        found[-1].append(event)
    return found


def rounds_shown(records: Iterable[Record], method: str = "dynatree") -> int:
    count = 0
    for record in records:
        if isinstance(record, Run):
            count = 0
        elif isinstance(record, Round) and record.method == method:
            count += 1
    return count


def tree_round(number: int, text: str = " a time", d0: float = 5.0, tau_h: float = 0.9) -> Round:
    return Round(
        method="dynatree",
        round=number,
        position=3 * number,
        t=0.02 * (number + 1),
        wall_s=0.1 * (number + 1),
        draft_s=0.004,
        verify_s=0.012,
        commit_s=0.001,
        target_forwards=1,
        draft_forwards=2,
        knobs=Knobs(tau_h=tau_h, tau_l=0.4, d0=d0),
        tokens=[2, 11, 12, 13, 14, 15],
        parents=[-1, 0, 0, 1, 1, 3],
        logprobs=[0.0, math.log(0.6), math.log(0.3), math.log(0.5), math.log(0.25), math.log(0.1)],
        pieces=[" upon", " a", " the", "t", " while", "\n"],
        accepted=[1, 3],
        committed=[11, 13, 100 + number],
        text=" at" + text,
    )


def sampled_run(methods: Iterable[str] = ("dynatree", "ar"), temperature: float = 0.6, top_p: float = 0.9) -> Run:
    return structs.replace(run(methods), temperature=temperature, top_p=top_p, seed=7)


def sampled_round(number: int) -> Round:
    event = tree_round(number)
    own = [0.0, *(logprob - math.log(10) for logprob in event.logprobs[1:])]
    return structs.replace(event, draft_logprobs=own)


def delayed_run(methods: Iterable[str] = ("delayed", "ar"), verifier: str = "traversal") -> Run:
    own = asdict(Delayed(verifier, "delayed", 2, 1, 2))
    told = sampled_run(methods, top_p=1.0)
    parameters = {name: dict(own) if name == "delayed" else given for name, given in told.methods.items()}
    return structs.replace(told, methods=parameters, verifier=verifier, drafting="delayed")


def drawn_round(number: int, *, told: bool = True, generator: float = 0.4) -> Round:
    """A round with a sampled tree whose rollouts share their first token; two tokens are accepted, one is the target's.

    `told` is whether the round has statistics of the verification; `generator` is their surprise in nats.
    """
    found = Verification(
        surprise=generator,
        surprise_variance=2.5,
        top1=-0.2,
        top1_variance=0.6,
        predicted_tokens=2.5 + 0.2 * (number % 3),
        reach=[1.0, 0.9, 0.62, 0.3, 0.04],
        path=[
            Draws(count=1, accepted=True, l1=0.4, acceptance=0.8, bound=0.8),
            Draws(count=2, accepted=True, l1=0.7, acceptance=0.75, bound=0.79),
            Draws(count=2, accepted=False, l1=1.1, acceptance=0.5, bound=0.56),
        ],
    )
    return structs.replace(
        tree_round(number),
        method="delayed",
        knobs=None,
        tokens=[2, 11, 13, 14, 15],
        parents=[-1, 0, 1, 2, 2],
        logprobs=[0.0, math.log(0.6), math.log(0.5), math.log(0.3), math.log(0.1)],
        pieces=[" upon", " a", "t", " while", " the"],
        accepted=[1, 2],
        shape=(2, 1, 2),
        drawn=[1, 1, 2, 1, 1],
        verification=found if told else None,
    )


def turned_temperature(method: str, number: int, old: float, new: float) -> Knob:
    return Knob(method=method, round=number, name="temperature", old=old, new=new, source="user")


def plain_round(method: str, number: int, text: str = " at") -> Round:
    return Round(
        method=method,
        round=number,
        position=number,
        t=0.02 * (number + 1),
        wall_s=0.1 * (number + 1),
        draft_s=0.0,
        verify_s=0.012,
        commit_s=0.001,
        target_forwards=1,
        draft_forwards=0,
        tokens=[2],
        parents=[-1],
        logprobs=[0.0],
        pieces=[" upon"],
        accepted=[],
        committed=[(11, 13)[number] if number < 2 else 100],
        text=text,
    )


def raced(*methods: Iterable[Round]) -> list[Round]:
    placed = list[tuple[float, Round]]()
    for rounds in methods:
        lost_s = 0.0
        for event in rounds:
            lost_s += event.stalled_s or 0.0
            placed.append((event.t - lost_s, event))
    return [event for _, event in sorted(placed, key=itemgetter(0))]


def story(rounds: int = 6) -> list[Event]:
    events: list[Event] = [run(), Start(method="dynatree", prefill_s=0.01), Start(method="ar", prefill_s=0.01)]
    for number in range(rounds):
        if number == 3:
            events.append(Knob(method="dynatree", round=3, name="tau_h", old=0.9, new=0.8, source="user"))
        events.append(tree_round(number, tau_h=0.9 if number < 3 else 0.8, d0=5.0 + 0.2 * number))
        events.append(plain_round("ar", number))
    events += [End(method="dynatree", reason="length"), End(method="ar", reason="eos")]
    return [*events, Summary(methods=fold(events).figures())]


def state_of(records: Iterable[Record]) -> RunState:
    state = RunState()
    for record in records:
        state = apply(state, record)
    return state


def running() -> Scene:
    return Scene(state_of([Prompt(1, 2), *story()[:-3]]))


def text_of(row: Row) -> str:
    return "".join(text for text, _ in row)


def lines(rows: Iterable[Row]) -> list[str]:
    return [text_of(row) for row in rows]


class ScriptedControls:
    def __init__(self) -> None:
        self.session = Session(("Once upon", "Another"), Models("big", "small"), RunConfig(dynatree=DynaTree()))
        self.config = self.session.config
        self.conditions = Conditions()
        self.prompt = "Once upon"
        self.stage: Stage | None = None
        self.broke = ""
        self.comparing = ""
        self.preparing = ""
        self.turns: list[tuple[KnobName, float]] = []
        self.watched = ""
        self.stages = 0
        self.edited: list[str] = []
        self.file: Path | None = None

    def turn(self, name: KnobName, value: float, rules_name: RulesName) -> Turn:
        self.turns.append((name, round(value, 6)))
        self.config = self.config.turned(name, value, rules_name)
        return Turn(name, value, rules_name, len(self.turns))

    def watch(self, method: str) -> None:
        self.watched = method

    def compare(self, method: str) -> None:
        self.comparing = method

    def step(self) -> None:
        self.stages += 1

    def break_on(self, conditions: Conditions) -> None:
        self.conditions = conditions

    def edit(self, prompt: str) -> None:
        self.edited.append(prompt)

    def record(self, path: Path | None) -> None:
        self.file = path


class ScriptedSource:
    def __init__(self, records: Iterable[Record] = (), *, steerable: bool = True) -> None:
        self.records: list[Record] = list(records)
        self.steering = ScriptedControls()
        self.controls = self.steering if steerable else None
        self.playback = None
        self.paused = False
        self.lost = None
        self.speed = 1.0
        self.steps: list[int] = []
        self.stopped = False

    @property
    def turns(self) -> list[tuple[KnobName, float]]:
        return self.steering.turns

    @property
    def recorded(self) -> Path | None:
        return self.steering.file

    def start(self) -> None: ...

    def advance(self, now: float) -> None: ...

    def set_speed(self, speed: float) -> None:
        self.speed = speed

    def set_paused(self, *, paused: bool) -> None:
        self.paused = paused

    def go(self, step: int) -> None:
        self.steps.append(step)

    def stop(self) -> None:
        self.stopped = True

    def close(self, timeout_s: float) -> bool:
        del timeout_s
        return True
