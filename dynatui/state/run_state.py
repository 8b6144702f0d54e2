"""State of the run on the screen, and the knob changes in earlier runs: a pure fold of the engine's events and of
records of loading, prompts and failures. Makes foreign text safe for the terminal. Uses no widget, clock or thread.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import zip_longest
from typing import TypeAlias

import msgspec
from msgspec import UNSET, structs

from decoder.analysis.metrics import RunFold
from decoder.events import End, Event, Figures, Knob, Round, Run, Start, Summary
from decoder.models.names import LOOKUP
from dynatui.clean import clean, clean_line
from dynatui.servers.this_run import Chains, chains_of
from dynatui.state.lane import Change, LaneState, Sample, begun, decoded, turned

_MOST_RUNS = 20
_MOST_TEXTS = 200
_SPEEDUP = ("speedup", "speedup_low", "speedup_high", "speedup_reason")


Outcome: TypeAlias = tuple[Change, Sequence[Sample], Sequence[Sample]]
"""A knob change, the rounds before it, and the rounds after it."""


@dataclass(frozen=True)
class EarlierRun:
    number: int
    prompt: str
    turns: Mapping[str, tuple[Outcome, ...]]


def outcomes(lane: LaneState) -> Iterator[Outcome]:
    """The user's knob changes, each with at most a window of rounds on both sides, which ends at the next change."""
    for turn, following in zip_longest(lane.turns, lane.turns[1:]):
        before = lane.samples[max(0, turn.first - lane.window) : turn.first]
        end = turn.round + (len(before) or lane.window)
        yield turn, before, lane.samples[turn.round : min(end, following.first) if following else end]


_MOST_LOADING = 32
_LINES = ("target", "draft", "device", "dtype", "draft_dtype", "path", "path_reason", "verifier", "drafting")
_OPTIONAL_LINES = ("category", "repeated_start")
"""Fields of a `Run` whose text must stay on one line; those in `_OPTIONAL_LINES` may be absent."""


@dataclass(frozen=True)
class Loading:
    step: str
    progress: str = ""
    at_s: float = 0.0


@dataclass(frozen=True)
class Prompt:
    number: int
    total: int


@dataclass(frozen=True)
class Failure:
    """An error that is shown to the user; the message names a remedy."""

    message: str
    exit_code: int


Record: TypeAlias = Event | Loading | Prompt | Failure


class RunState(msgspec.Struct, frozen=True):
    race: RunFold = msgspec.field(default_factory=RunFold)
    lanes: Mapping[str, LaneState] = msgspec.field(default_factory=dict)
    chosen: str = ""
    summary: Mapping[str, Figures] | None = None
    peak_bytes_by_rank: tuple[int, ...] = ()
    """Peak memory of each process of the target; empty before the summary, or if there is only one process."""
    ends: Mapping[str, End] = msgspec.field(default_factory=dict)
    prompt: Prompt | None = None
    loading: tuple[Loading, ...] = ()
    """Loading steps; the last step is in progress."""
    number: int = 0
    """Number of the run, from 1; 0 before the first run."""
    earlier: tuple[EarlierRun, ...] = ()
    """Earlier runs in which the user turned knobs, newest last."""
    chains_before: Mapping[str, Mapping[str, Chains]] = msgspec.field(default_factory=dict)
    """Chains of earlier texts at temperature 0, by prompt and method, newest last."""
    failure: Failure | None = None

    @property
    def run(self) -> Run | None:
        return self.race.run

    @property
    def watched(self) -> str:
        """The method whose text, tree and curves are shown: the chosen method, or else the first method of the run."""
        return self.chosen if self.chosen in self.lanes else next(iter(self.lanes), "")

    @property
    def lane(self) -> LaneState:
        return self.lanes.get(self.watched, _NO_LANE)

    @property
    def rounds(self) -> int:
        return len(self.lane.past)

    @property
    def prompt_text(self) -> str:
        return self.run.prompt if self.run else ""

    @property
    def under_way(self) -> str:
        step = self.loading[-1] if self.loading else Loading("starting")
        return f"{step.step}, {step.progress}" if step.progress else step.step

    @property
    def done(self) -> bool:
        return self.summary is not None

    @property
    def over(self) -> bool:
        """Whether all prompts are decoded: the last prompt is done, and no method was stopped in it."""
        last = self.prompt is not None and self.prompt.number == self.prompt.total
        return self.done and last and all(end.reason != "stopped" for end in self.ends.values())

    def chains(self, method: str) -> Chains:
        """Chains of a method's rounds at temperature 0; of a prompt's several texts, only the latest counts."""
        before = (by for prompt, by in self.chains_before.items() if prompt != self.prompt_text)
        return reduce(Chains.plus, (by.get(method, Chains()) for by in before), _greedy_chains(self.lanes[method]))

    def with_origins(self, event: Round) -> Round:
        """The round with the origins of its nodes; without a draft model, all nodes except the root are looked up."""
        if event.origins or self.run is None or self.run.draft != LOOKUP:
            return event
        return structs.replace(event, origins=["root", *["lookup"] * (len(event.tokens) - 1)])

    def figures(self) -> Mapping[str, Figures]:
        """Figures of every method, from the engine's summary as soon as there is one."""
        return self.race.figures() if self.summary is None else self.summary

    def pooled(self) -> Mapping[str, Figures]:
        """Figures of every method, with speed-ups over all texts under the present settings, as in all panels."""
        pooled, own = self.race.pooled(), self.figures()
        return {
            name: structs.replace(entry, **{key: getattr(pooled[name], key) for key in _SPEEDUP})
            if name in pooled
            else entry
            for name, entry in own.items()
        }


def _greedy_chains(lane: LaneState) -> Chains:
    return chains_of(event for event in lane.past if lane.setting("temperature", event.round) == 0)


_NO_LANE = LaneState()


def apply(state: RunState, record: Record) -> RunState:
    match record:
        case Loading():
            return structs.replace(state, loading=_with_step(state.loading, record))
        case Failure(message, exit_code):
            return structs.replace(state, failure=Failure(clean(message), exit_code))
        case Prompt():
            return structs.replace(state, prompt=record, failure=None)
        case Run():
            return _begin(state, record)
        case Start() | Round() | Knob() | End():
            name = clean_line(record.method)
            named = record if name == record.method else structs.replace(record, method=name)
            return _advance(structs.replace(state, race=state.race.apply(named)), named)
        case Summary():
            summary = state.race.judged({clean_line(name): figures for name, figures in record.methods.items()})
            return structs.replace(state, summary=summary, peak_bytes_by_rank=tuple(record.peak_bytes_by_rank))


def _with_step(steps: tuple[Loading, ...], record: Loading) -> tuple[Loading, ...]:
    step = replace(record, step=clean_line(record.step), progress=clean_line(record.progress))
    if steps and steps[-1].step == step.step:
        return (*steps[:-1], replace(steps[-1], progress=step.progress))
    return (*steps, step)[-_MOST_LOADING:]


def _begin(state: RunState, record: Run) -> RunState:
    methods = {clean_line(name): parameters for name, parameters in record.methods.items()}
    lines = {name: clean_line(getattr(record, name)) for name in _LINES}
    ranks = [clean_line(device) for device in record.ranks]
    optional = {name: clean_line(text) if (text := getattr(record, name)) else UNSET for name in _OPTIONAL_LINES}
    run = structs.replace(record, prompt=clean(record.prompt), methods=methods, ranks=ranks, **lines, **optional)
    turns = {method: tuple(outcomes(lane)) for method, lane in state.lanes.items() if lane.turns}
    ended = (EarlierRun(state.number, state.prompt_text, turns),) if turns else ()
    return RunState(
        race=state.race.apply(run),
        lanes={name: begun(name, run) for name in methods},
        chosen=state.chosen,
        prompt=state.prompt,
        loading=state.loading,
        number=state.number + 1,
        earlier=(*state.earlier, *ended)[-_MOST_RUNS:],
        chains_before=_chains_before(state, run),
    )


def _chains_before(state: RunState, run: Run) -> Mapping[str, Mapping[str, Chains]]:
    """Chains of the texts before `run`; empty if `run` has another pair of models."""
    if state.run is None or (state.run.target, state.run.draft) != (run.target, run.draft):
        return {}
    chains = {prompt: by for prompt, by in state.chains_before.items() if prompt != state.prompt_text}
    chains[state.prompt_text] = {method: _greedy_chains(lane) for method, lane in state.lanes.items()}
    return dict([*chains.items()][-_MOST_TEXTS:])


def _advance(state: RunState, event: Start | Round | Knob | End) -> RunState:
    lane = state.lanes.get(event.method, _NO_LANE)
    match event:
        case Start():
            return state
        case End():
            end = structs.replace(event, error=clean_line(event.error) if event.error else None)
            return structs.replace(state, ends={**state.ends, event.method: end})
        case Knob():
            lane = turned(lane, event)
        case Round():
            lane = decoded(lane, event, state.race.tallies[event.method])
    return structs.replace(state, lanes={**state.lanes, event.method: lane})
