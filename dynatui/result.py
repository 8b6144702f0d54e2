"""Texts on the speed-up and the result of a run, shared by panels, exit summary and runs without a screen."""

from collections.abc import Iterator, Mapping, Sequence

from decoder.analysis.metrics import RunFold, differs_by_design
from decoder.events import Figures
from decoder.methods import draws_alone
from decoder.sampling.settings import Sampling
from dynatui.knobs import info, preset_of
from dynatui.number_format import counted, percent, short
from dynatui.state.lane import LaneState

ALONE = "own noise"
"""Table entry of a method that samples with its own noise, so that its text is not compared with that of ar."""
BY_DESIGN = "by design"
_NO_SPEEDUP = {
    "machine busy": ("machine busy: no figure", "busy"),
    "too few rounds": ("too few rounds: no figure", "few"),
    "warming up": ("warming up", "warm-up"),
}
_LONGEST_NAME = 12
_SHARED = frozenset(knob.name for knob in Sampling.knobs)


def no_speedup(figures: Figures) -> tuple[str, ...]:
    """Wordings of why a speed-up is missing, the longest first; empty if it is known, or if ar does not race."""
    return _NO_SPEEDUP.get(figures.speedup_reason or "", ())


def speedup_cell(figures: Figures) -> str:
    """Table entry of a speed-up, at most 6 cells wide."""
    if figures.speedup_reason == "warming up":
        return "-"
    return short(figures.speedup) if figures.speedup_reason is None else no_speedup(figures)[-1]


def interval(figures: Figures) -> str:
    """Interval of the speed-up, such as (1.21 to 1.45); empty if unknown."""
    if figures.speedup_low is None or figures.speedup_high is None:
        return ""
    return f"({short(figures.speedup_low)} to {short(figures.speedup_high)})"


def times_plain(figures: Figures) -> tuple[str, ...]:
    """Wordings of a known speed-up, the longest first."""
    factor = f"{short(figures.speedup)}x"
    exact = f"{factor} {interval(figures)}".strip()
    return (
        *(f"{exact} the speed of plain decoding", f"{exact} plain decoding", f"{exact} plain"),
        *(f"{factor} plain decoding", f"{factor} plain", factor),
    )


def same_as_ar(method: str, figures: Figures, differs: str) -> str:
    """Table entry on whether a text equals that of ar; `differs` is the entry for a clear difference."""
    if differs_by_design(figures):
        return BY_DESIGN
    if figures.identical_to_ar is None:
        # If ar runs too, the only reason not to compare the texts is the method's own noise.
        beside_ar = figures.speedup is not None or figures.speedup_reason is not None
        return ALONE if draws_alone(method) and beside_ar else "-"
    if figures.identical_to_ar:
        return "yes"
    return "near tie" if figures.near_tie else differs


def table(figures: Mapping[str, Figures]) -> list[list[str]]:
    """Cells of a table with a row for each method."""
    rows = [["method", "x plain (95 %)", "tokens/s", "same as ar", "L-bar", "accepted"]]
    for method, entry in figures.items():
        speed = "1" if method == "ar" else f"{speedup_cell(entry)} {interval(entry)}".strip()
        same = "-" if method == "ar" else same_as_ar(method, entry, "NO")
        yielded = short(entry.tokens_per_round), percent(entry.acceptance_rate)
        rows.append([method[:_LONGEST_NAME], speed, short(entry.tokens_per_second, 1), same, *yielded])
    return rows


def result(race: RunFold, width: int | None = None) -> list[str]:
    """The table of all texts under the present settings, with the number of texts, and with the columns that fit."""
    pooled = {method: race.pooled_among(method) for method in race.tallies}
    counts = {method: texts for method, (_, texts) in pooled.items() if texts}
    head, *rows = table({method: pooled[method][0] for method in counts})
    counted_rows = ([*row, str(texts)] for row, texts in zip(rows, counts.values(), strict=True))
    return aligned([[*head, "texts"], *counted_rows], width)


def heading(race: RunFold) -> tuple[str, str]:
    """(title with the number of texts in the result; models, device and arithmetic)."""
    run, texts = race.run, max((race.pooled_among(method)[1] for method in race.tallies), default=0)
    pair = f"{run.target} with {run.draft} on {run.place} in {run.arithmetic}" if run else ""
    return f"result of {counted(texts, 'text')}{' under these settings' if texts > 1 else ''}", pair


def settings(lanes: Mapping[str, LaneState]) -> Iterator[str]:
    """A line for each method with knobs: the preset, and the values that the user set last."""
    for method, lane in lanes.items():
        knobs = [(info(name), value) for name, value in lane.user_settings.items() if name not in _SHARED]
        if knobs:
            preset = preset_of(method, lane)
            values = ", ".join(f"{knob.symbol} {knob.written(value)}" for knob, value in knobs)
            yield f"{method}: {f'preset {preset}, ' if preset else ''}{values}"


def aligned(rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Lines of a table with as many columns as fit; the first column is aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    while width is not None and len(widths) > 1 and sum(widths) + 2 * (len(widths) - 1) > width:
        widths.pop()
    first, *others = widths
    return [
        "  ".join([row[0].ljust(first), *(cell.rjust(width) for cell, width in zip(row[1:], others, strict=False))])
        for row in rows
    ]
