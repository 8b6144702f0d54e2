"""Page of a recording, from the screen's states: data for scripts, tables, and text for browsers without scripts."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from itertools import groupby
from operator import attrgetter
from typing import TypeAlias

import msgspec

from decoder.analysis.metrics import FIGURES, Figure, differs_by_design, missing_speedups
from decoder.analysis.stalls import stall_notes
from decoder.events import Event, Figures, Round, Run
from decoder.methods import METHODS, root_is_drafted
from dynatui.clean import clean, clean_line
from dynatui.knobs import info, limit_name
from dynatui.number_format import memory_by_rank
from dynatui.report.page import HtmlPage, Markup, asset, details, element, joined, table
from dynatui.state.lane import LaneState
from dynatui.state.run_state import RunState, apply


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
NumberOf: TypeAlias = Callable[[str], Text]
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


def replay_data(states: Iterable[RunState], first: int = 1) -> ReplayData:
    numbers: dict[str, Text] = {}

    def number_of(text: str) -> Text:
        return numbers.setdefault(clean(text), len(numbers))

    runs = [_run(state, number, number_of) for number, state in enumerate(states, first)]
    return ReplayData(texts=list(numbers), keys=KEYS, runs=runs)


def label_of(number: int, prompt: str) -> str:
    beginning = clean_line(" ".join(prompt[: 2 * _LABEL].split()))
    return f"{number}: {beginning if len(beginning) <= _LABEL else f'{beginning[:_LABEL]}…'}"


def _run(state: RunState, number: int, number_of: NumberOf) -> RunData:
    return RunData(
        label=label_of(number, state.prompt_text),
        prompt=number_of(state.prompt_text),
        most=state.run.max_new_tokens if state.run else 0,
        window=state.lane.window,
        lanes=[_lane(name, lane, state, number_of) for name, lane in state.lanes.items()],
    )


def _lane(name: str, lane: LaneState, state: RunState, number_of: NumberOf) -> MethodData:
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
        texts=[[number_of(token.text) for token in group] for group in tokens],
        kept=[sum(token.origin == "accepted" for token in group) for group in tokens],
        trees=[_tree(state.with_origins(event), number_of) for event in rounds],
        ms=[(_ms(event.draft_s), _ms(event.verify_s), _ms(event.commit_s)) for event in rounds],
        limits=[limit_name(event.limited_by) if event.limited_by else None for event in rounds],
        curves={
            key: Series(list(curve.ends), [round(value, 4) for value in curve.points])
            for key in _CURVES
            if (curve := getattr(lane.curves, key)).points
        },
        turns=[KnobMark(mark.token, f"{info(mark.name).symbol} {mark.old:g} → {mark.new:g}") for mark in lane.marks],
    )


def _tree(event: Round, number_of: NumberOf) -> TreeData:
    logprobs: Sequence[float] = event.draft_logprobs or event.logprobs
    return TreeData(
        parents=event.parents,
        chances=[round(_CHANCES * math.exp(min(0.0, logprob))) for logprob in logprobs],
        pieces=[number_of(piece[:_LONGEST_PIECE]) for piece in event.pieces],
        accepted=event.accepted,
        looked_up=[node for node, origin in enumerate(event.origins) if origin == "lookup"],
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 3)


SCRIPTS = ("dom.js", "text.js", "tree.js", "chart.js", "replay.js")
_UNKNOWN = "-"
_ABOUT = (
    "Speculative decoding: a small draft model guesses the next tokens, and the large target model checks all guesses "
    "in one pass, keeps the guesses that agree with it, and adds one token of its own. This is one round. Methods "
    "differ in the guesses that the draft makes; ar is decoding without guesses."
)


def replay_page(name: str, runs: Iterable[Sequence[Event]], *, first: int = 1) -> HtmlPage:
    """`first` is the number that the first of `runs` has in the recording."""
    states = [reduce(apply, events, RunState()) for events in runs]
    run = states[0].run if states else None
    pair = f": {run.target} with {run.draft}" if run else ""
    head = element("header", element("h1", f"Replay of {name}{pair}"), element("p", _ABOUT))
    sections = (_of_run(number, state, state.run) for number, state in enumerate(states, first) if state.run)
    body = joined((head, Markup(asset("replay.html")), *sections))
    return HtmlPage(f"{name} - dynatui", body, replay_data(states, first), SCRIPTS)


def _of_run(number: int, state: RunState, run: Run) -> Markup:
    figures = state.figures()
    parameters = [(name, _parameters_text(lane.parameters)) for name, lane in state.lanes.items()]
    return element(
        "section",
        element("h2", f"Figures of prompt {label_of(number, run.prompt)}"),
        details(_setup(run, state.peak_bytes_by_rank)),
        figures_table("All methods on this prompt", figures),
        *(element("p", words) for words in (*stall_notes(figures.values())[:1], *missing_speedups(figures))),
        element("details", element("summary", "Parameters of the methods"), details(parameters)),
        element("noscript", _text(state)),
        class_="run",
    )


def _setup(run: Run, peaks: Sequence[int]) -> list[tuple[str, str]]:
    truncated = (f", top-k {run.top_k}" if run.top_k else "") + (f", top-p {run.top_p:g}" if run.top_p < 1 else "")
    chosen = f"at temperature {run.temperature:g}{truncated}" if run.temperature else "greedily (most probable)"
    return [
        ("Target model", run.target),
        ("Draft model", run.draft),
        ("Computed in", f"{run.arithmetic} on {run.place}"),
        *((("Memory", memory_by_rank(peaks)),) if peaks else ()),
        ("Rounds", f"{run.path}, {run.path_reason}" if run.path else _UNKNOWN),
        ("Tokens are chosen", f"{chosen}, seed {run.seed}"),
        ("Length", f"{len(run.prompt_tokens)} prompt tokens, at most {run.max_new_tokens} new tokens"),
        ("Recorded", f"{run.started_at} by dynatui {run.version}"),
    ]


def figures_table(caption: str, figures: Mapping[str, Figures]) -> Markup:
    rows = list[list[str]]()
    for figure in FIGURES:
        if any(getattr(of_method, figure.key) is not None for of_method in figures.values()):
            definition = "; elsewhere: ".join(filter(None, (figure.formula, figure.elsewhere)))
            name = joined((figure.label, " ", element("small", definition)))
            rows.append([name, *(_cell(figure, of_method) for of_method in figures.values())])
    return table(caption, ["figure", *figures], rows)


def _cell(figure: Figure, figures: Figures) -> str:
    match getattr(figures, figure.key):
        case None:
            by_design = figure.key == "identical_to_ar" and differs_by_design(figures)
            return "no, by design" if by_design else _UNKNOWN
        case bool(value):
            return "yes" if value else "no"
        case value if figure.key.endswith("_bytes"):
            return f"{value / 1e6:,.0f} MB"
        case float(value) if figure.key.endswith("_s"):
            return f"{value:.4f}"
        case float(value):
            return f"{value:.2f}"
        case value:
            return str(value)


def _parameters_text(parameters: object) -> str:
    if not isinstance(parameters, dict) or not parameters:
        return "none"
    return ", ".join(f"{name} {value}" for name, value in parameters.items())


def _text(state: RunState) -> Markup:
    written = "".join(token.text for token in state.lane.tokens)
    parts = ("Prompt", state.prompt_text), (f"Text of {state.watched}", written)
    return joined(each for title, text in parts for each in (element("h3", title), element("pre", text)))
