"""Data of a run for the replay script, from the state that the screen shows; independent of HTML and files."""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TypeAlias

import msgspec

from decoder.events import Round
from decoder.methods import METHODS, root_is_drafted
from dynatui.clean import clean, clean_line
from dynatui.knobs import info, limit_name
from dynatui.state.lane import LaneState
from dynatui.state.run_state import RunState


class KeyHelp(msgspec.Struct, frozen=True):
    caps: str
    names: tuple[str, ...]
    """The keys' names in browsers. For a key pressed with Shift, `Shift+` precedes the name, unless the name is one
    character."""
    action: str
    """Name of the action in the script; empty if the browser handles the key."""
    help: str


KEYS = (
    KeyHelp("←", ("ArrowLeft",), "back", "one round back"),
    KeyHelp("→", ("ArrowRight",), "on", "one round on"),
    KeyHelp("Shift ←, Page Up", ("Shift+ArrowLeft", "PageUp"), "back_ten", "ten rounds back"),
    KeyHelp("Shift →, Page Down", ("Shift+ArrowRight", "PageDown"), "on_ten", "ten rounds on"),
    KeyHelp("Home", ("Home",), "first", "the first round"),
    KeyHelp("End", ("End",), "last", "the last round"),
    KeyHelp("Space", (" ",), "play", "play or pause; after the last round, play again"),
    KeyHelp("<", ("<", ","), "slower", "play slower"),
    KeyHelp(">", (">", "."), "faster", "play faster"),
    KeyHelp("1 to 9", tuple("123456789"), "method", "show the method with this number"),
    KeyHelp("w", ("w",), "next_method", "show the next method"),
    KeyHelp("n", ("n",), "next_run", "the next prompt"),
    KeyHelp("N", ("N",), "previous_run", "the prompt before"),
    KeyHelp("Tab, Enter", (), "", "move to a control, press it"),
    KeyHelp("?", ("?",), "help", "show or hide these keys"),
)


Text: TypeAlias = int
"""Index of a text in the page's list of texts."""
_CHANCES = 10_000
"""Integer that stands for probability 1 in the page's data."""
_LONGEST_PIECE = 80
_LABEL = 60
_CURVES = ("acceptance", "tokens", "depth", "d0", "tau_h")


class Series(msgspec.Struct, frozen=True):
    at: list[int]
    values: list[float]


class TreeData(msgspec.Struct, frozen=True):
    """Draft tree of a round. `parents`, `chances` and `pieces` have one entry per node; node 0 is the root."""

    parents: list[int]
    chances: list[int]
    """Probability of each token given the path to it, in ten thousandths."""
    pieces: list[Text]
    accepted: list[int]
    looked_up: list[int]


class KnobMark(msgspec.Struct, frozen=True):
    at: int
    """Length of the text in tokens at the knob change."""
    label: str


class MethodData(msgspec.Struct, frozen=True):
    """Data of one method; each list except `turns` has one entry per round."""

    name: str
    about: str
    ended: str
    drafts: bool
    """Whether the method reports the tokens that it drafts."""
    root_is_drafted: bool
    t: list[float]
    """Decode time up to the end of the round, in seconds."""
    ends: list[int]
    """Length of the text in tokens at the end of the round."""
    texts: list[list[Text]]
    kept: list[int]
    """Number of committed tokens that were drafted."""
    trees: list[TreeData]
    ms: list[tuple[float | None, float | None, float | None]]
    """Times of drafting, verification and commit, in milliseconds."""
    limits: list[str | None]
    curves: dict[str, Series]
    turns: list[KnobMark]


class RunData(msgspec.Struct, frozen=True):
    label: str
    prompt: Text
    most: int
    window: int
    """Window of the curves' moving averages, in rounds of the first method."""
    lanes: list[MethodData]


class ReplayData(msgspec.Struct, frozen=True):
    texts: list[str]
    keys: tuple[KeyHelp, ...]
    runs: list[RunData]


class Texts:
    def __init__(self) -> None:
        self._numbers: dict[str, Text] = {}

    def number(self, text: str) -> Text:
        """Cleans a text, adds it to the list if it is new, and returns its index."""
        return self._numbers.setdefault(clean(text), len(self._numbers))

    def all(self) -> list[str]:
        return list(self._numbers)


def replay_data(states: Iterable[RunState], first: int = 1) -> ReplayData:
    texts = Texts()
    runs = [_run(state, number, texts) for number, state in enumerate(states, first)]
    return ReplayData(texts=texts.all(), keys=KEYS, runs=runs)


def label_of(number: int, prompt: str) -> str:
    beginning = clean_line(" ".join(prompt[: 2 * _LABEL].split()))
    return f"{number}: {beginning if len(beginning) <= _LABEL else f'{beginning[:_LABEL]}…'}"


def _run(state: RunState, number: int, texts: Texts) -> RunData:
    return RunData(
        label=label_of(number, state.prompt_text),
        prompt=texts.number(state.prompt_text),
        most=state.run.max_new_tokens if state.run else 0,
        window=state.lane.window,
        lanes=[_lane(name, lane, state, texts) for name, lane in state.lanes.items()],
    )


def _lane(name: str, lane: LaneState, state: RunState, texts: Texts) -> MethodData:
    end, rounds = state.ends.get(name), lane.past
    tokens = [list(group) for _, group in groupby(lane.tokens, attrgetter("round"))]
    return MethodData(
        name=name,
        about=METHODS[name].title if name in METHODS else "",
        ended=f"{end.reason}: {clean_line(end.error)}" if end and end.error else end.reason if end else "",
        drafts=all(event.draft_forwards is not None for event in rounds),
        root_is_drafted=root_is_drafted(name),
        t=[round(event.t, 6) for event in rounds],
        ends=[event.position + len(event.committed) for event in rounds],
        texts=[[texts.number(token.text) for token in group] for group in tokens],
        kept=[sum(token.origin == "accepted" for token in group) for group in tokens],
        trees=[_tree(state.with_origins(event), texts) for event in rounds],
        ms=[(_ms(event.draft_s), _ms(event.verify_s), _ms(event.commit_s)) for event in rounds],
        limits=[limit_name(event.limited_by) if event.limited_by else None for event in rounds],
        curves={
            key: Series(list(curve.ends), [round(value, 4) for value in curve.points])
            for key in _CURVES
            if (curve := getattr(lane.curves, key)).points
        },
        turns=[KnobMark(mark.token, f"{info(mark.name).symbol} {mark.old:g} → {mark.new:g}") for mark in lane.marks],
    )


def _tree(event: Round, texts: Texts) -> TreeData:
    logprobs: Sequence[float] = event.draft_logprobs or event.logprobs
    return TreeData(
        parents=event.parents,
        chances=[round(_CHANCES * math.exp(min(0.0, logprob))) for logprob in logprobs],
        pieces=[texts.number(piece[:_LONGEST_PIECE]) for piece in event.pieces],
        accepted=event.accepted,
        looked_up=[node for node, origin in enumerate(event.origins) if origin == "lookup"],
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 3)
