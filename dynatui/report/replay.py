"""Page of a recording, from the screen's states: data for scripts, tables, and text for browsers without scripts."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from decoder.analysis.metrics import FIGURES, Figure, differs_by_design, missing_speedups
from decoder.analysis.stalls import stall_notes
from decoder.events import Event, Figures, Run
from dynatui.number_format import memory_by_rank
from dynatui.report.page import HtmlPage, Markup, asset, details, element, joined, table
from dynatui.report.replay_data import label_of, replay_data
from dynatui.state.run_state import RunState, apply

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
