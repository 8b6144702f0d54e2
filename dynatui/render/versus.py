"""Two recordings side by side: figures of the watched methods at equal decode time, and their ratios."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from decoder.analysis.metrics import first_difference
from decoder.analysis.stalls import stall_notes
from decoder.events import Figures
from dynatui.number_format import ms, percent, short
from dynatui.render.ink import Column, Ink, Row, Rows, Sheet, bar, best, column, fit, frame, inside, share, width_of
from dynatui.render.status import speed_text
from dynatui.render.words import sampling_words
from dynatui.state.run_state import RunState

LETTERS = ("A", "B")
_INKS: tuple[Ink, Ink] = ("first", "second")
_NAME = 16
_COLUMN = 11
_BAR = 10
_LEAST_BARRED = 36
_LEAST_FRAMED = 7


@dataclass(frozen=True)
class VersusView:
    played_s: float
    seconds: float
    number: int
    pairs: int
    speed: float
    paused: bool
    ended: bool


def _figure(
    head: str, of: Callable[[Figures], float | None], written: Callable[[float | None], str], *, timed: bool = False
) -> Column[Sequence[Figures]]:
    """A figure of one side, or the ratio B / A of both; "busy" if times with stalled rounds would be compared."""

    def value(sides: Sequence[Figures]) -> str:
        figures = [of(side) for side in sides]
        if len(figures) == 1:
            return written(figures[0])
        if timed and any(side.stalled_rounds > side.left_out_rounds for side in sides):
            return "busy"
        below, above = figures
        return short(above / below) if above is not None and below else "-"

    return Column(head, _COLUMN, value)


def _round_s(figures: Figures) -> float | None:
    """Mean duration of a round in seconds, without the stalled rounds that rates exclude."""
    rounds = figures.rounds - figures.left_out_rounds
    return (figures.decode_s - figures.left_out_s) / rounds if rounds else None


def _count(value: float | None) -> str:
    return f"{value or 0:.0f}"


_FIGURES = (
    _figure("tokens/s", lambda figures: figures.tokens_per_second, lambda value: short(value, 1), timed=True),
    _figure("L-bar", lambda figures: figures.tokens_per_round, short),
    _figure("acc. rate", lambda figures: figures.acceptance_rate, percent),
    _figure("ms/round", _round_s, ms, timed=True),
    _figure("tokens", lambda figures: figures.committed, _count),
    _figure("rounds", lambda figures: figures.rounds, _count),
    _figure("distinct", lambda figures: figures.distinct_8grams, short),
    _figure("x plain", lambda figures: figures.speedup, short, timed=True),
)


def moment(now: VersusView, width: int) -> Row:
    number = f"run {now.number}/{now.pairs}  " if now.pairs > 1 else ""
    gap: Row = (("  ", "plain"),)
    left: Row = ((" dynatui ", "logo"), *gap, _doing(now), *gap, (f"{number}speed {speed_text(now.speed)}", "plain"))
    clock: Row = ((f"  {now.played_s:.2f} of {now.seconds:.2f} s decoded ", "dim"),)
    room = width - width_of(left) - width_of(clock) - 2
    if room < _BAR:
        return fit((*left, *clock), width)
    filled = round(share(now.played_s, now.seconds) * (room - 1))
    line: Row = (("━" * filled, "bar"), ("●", "good"), ("─" * (room - 1 - filled), "frame"))
    return (*left, *gap, *line, *clock)


def _doing(now: VersusView) -> tuple[str, Ink]:
    if now.paused:
        return "PAUSED", "warn"
    follows = "" if now.number == now.pairs else ", the next pair follows"
    return f"both runs have ended{follows}" if now.ended else "comparing", "good"


def heading(side: int, name: str, state: RunState, width: int) -> Row:
    run, figures = state.run, state.figures().get(state.watched)
    limit, tokens = (run.max_new_tokens if run else 0), (figures.committed if figures else 0)
    filled: Row = ((f" {tokens:>4}/{limit} ", "plain"),)
    if width >= _LEAST_BARRED:
        filled = ((bar(share(tokens, limit), _BAR), _INKS[side]), *filled)
    room = width - width_of(filled) - 5
    file_name = column(name, min(cell_len(name), room))
    models = f"  {state.watched}  {run.target} ← {run.draft}  {run.arithmetic}" if run else ""
    sampling = "" if run is None or not state.race.sampled else f"  {' '.join(sampling_words(state))}"
    wordings = f"{models}{sampling}", f"  {state.watched}{sampling}", f"  {state.watched}", ""
    details = best(room - cell_len(file_name), *wordings)
    left: Row = ((f" {LETTERS[side]} ", "tab"), (f" {file_name}", "strong"), (details, "dim"))
    return fit((*fit(left, width - width_of(filled)), *filled), width)


def table(states: Sequence[RunState], size: tuple[int, int]) -> Rows:
    """The figures of A and B and their ratio, and whether the texts are equal."""
    inner, _ = inside(size)
    left, right = (state.figures().get(state.watched) or Figures() for state in states)
    name = min(_NAME, max(3, inner // 3))
    sheet = Sheet(_FIGURES, max(_COLUMN, inner - name))

    def line(label: str, texts: str, ink: Ink) -> Row:
        return fit(((column(label, name) + texts, ink),), inner)

    body = [line(best(name - 1, "whole run", "run"), sheet.heads, "dim")]
    for letter, state, side, ink in zip(LETTERS, states, (left, right), _INKS, strict=True):
        body.append(line(f"{letter}  {state.watched}", sheet.row([side]), ink))
    body += [line("B / A", sheet.row((left, right)), "strong")]
    body += [fit(texts_compared(*states), inner)]
    title: Row = (("A against B", "title"), (" ─ watched methods, at equal decode time", "dim"))
    if stalled := stall_notes((left, right)):
        title = (*title, (f" ─ {stalled[1]}", "warn"))
    return frame(title, body, size) if size[1] >= _LEAST_FRAMED else [fit(row, size[0]) for row in body[: size[1]]]


def texts_compared(left: RunState, right: RunState) -> Row:
    """Whether the texts are equal up to the length of the shorter text, or why they are not compared."""
    if left.run is None or right.run is None:
        return ()
    if left.run.prompt_tokens != right.run.prompt_tokens:
        return (("! ", "warn"), ("the prompts differ, so the figures are not comparable", "plain"))
    if left.run.target != right.run.target:
        return (("! ", "warn"), (f"the targets differ: {left.run.target}, {right.run.target}", "plain"))
    left_tokens, right_tokens = (state.race.tallies[state.watched].tokens for state in (left, right))
    common, place = min(len(left_tokens), len(right_tokens)), first_difference(left_tokens, right_tokens)
    if place is not None:
        return (("~ ", "warn"), (f"the texts are the same for {place} tokens, then differ", "dim"))
    return (("= ", "good"), (f"the same text, as far as both have come: {common} tokens", "dim")) if common else ()
