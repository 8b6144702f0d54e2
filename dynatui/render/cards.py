"""The sentence at the top of the screen, and cards of the most important figures: a title in plain words, a value with
its trend, and a note. Three cards show speed, tokens per round and acceptance; a wide terminal has further cards.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from decoder.analysis.interval import Interval, Verdict, compared_to_limit
from decoder.analysis.metrics import differs_by_design, drafted_nodes
from decoder.analysis.roofline import SIZES, round_s, step_s
from decoder.analysis.speedup import WARM_UP_TOKENS
from decoder.analysis.stalls import stall_notes
from decoder.events import Figures
from dynatui.gpu import GpuLoad
from dynatui.number_format import counted, ms, percent, short
from dynatui.render.curves import deepest, scale_of
from dynatui.render.ink import DOT, Ink, Row, Rows, Span, best, column, fit, fitting, joined, trend
from dynatui.render.scene import Scene
from dynatui.render.words import drawing, faster_preset, is_alone, limited, shape_of, shape_written
from dynatui.result import ALONE, BY_DESIGN, no_speedup, times_plain
from dynatui.state.run_state import RunState

_CLEAR: Mapping[Verdict, Ink] = {"holds": "good", "does not hold": "warn", "cannot tell": "plain"}
"""Colour of the speed-up; "holds": its whole confidence interval is above 1, the speed of plain decoding."""


def headline(state: RunState) -> tuple[Row, ...]:
    """The sentence on speed, passes and text, in wordings, the longest first; empty before the first token."""
    entry = state.pooled().get(state.watched)
    if entry is None or not entry.committed:
        return ()
    speeds, passes, texts = _speed_wordings(state, entry) or ((),), _passes(entry), compared(state) or ((),)
    sentences = [(speed, passes[0], texts[0]) for speed in speeds[:-1] or speeds]
    sentences += [(speeds[-1], passes[-1], texts[-1]), (speeds[-1], (), texts[-1])]
    last = speeds[-1] or texts[-1] or passes[-1]
    return tuple(dict.fromkeys((*(joined(filter(None, parts), DOT) for parts in sentences if any(parts)), last)))


def compared(state: RunState) -> tuple[Row, ...]:
    """Whether the text equals that of plain decoding, in wordings, the longest first; empty if unknown."""
    figures = state.figures()
    entry, ar = figures.get(state.watched), figures.get("ar")
    if entry is None or ar is None or state.watched == "ar" or not entry.committed:
        return ()
    if entry.identical_to_ar is False or differs_by_design(entry):
        return _difference(entry)
    if entry.identical_to_ar is None:
        return _inked("dim", ALONE) if is_alone(state, state.watched) else ()
    if not ar.committed:
        return ()
    ar_lags = ar.committed < entry.committed and "ar" not in state.ends
    return _inked("good", "same text so far" if ar_lags else "same text")


def is_warm(state: RunState, method: str) -> bool:
    """Whether the method's warm-up is over or the method has finished."""
    entry = state.figures().get(method)
    return entry is not None and (entry.committed >= WARM_UP_TOKENS or method in state.ends)


def rate(state: RunState, method: str) -> float | None:
    """Tokens per second; None before the end of the method's warm-up."""
    entry = state.figures().get(method)
    return entry.tokens_per_second if entry is not None and is_warm(state, method) else None


def _speed_wordings(state: RunState, entry: Figures) -> tuple[Row, ...]:
    if state.watched == "ar":
        return _inked("plain", "plain decoding")
    if entry.speedup is None:
        return () if entry.speedup_reason == "warming up" else _inked("warn", *no_speedup(entry))
    clear = compared_to_limit(Interval(value=entry.speedup, low=entry.speedup_low, high=entry.speedup_high))
    return _inked(_CLEAR[clear], *times_plain(entry))


def _passes(entry: Figures) -> tuple[Row, ...]:
    passes = entry.target_forwards
    count, work = (entry.rounds, ("round",)) if passes is None else (passes, ("pass", "es"))
    long = f"{counted(entry.committed, 'token')} in {counted(count, *work)}"
    return _inked("strong", long, f"{entry.committed} in {count}")


def _difference(figures: Figures) -> tuple[Row, ...]:
    token, gap = figures.first_difference, figures.first_difference_gap
    where = "somewhere" if token is None else f"from token {token}"
    if differs_by_design(figures):
        return _inked("dim", f"differs {BY_DESIGN} {where}", f"differs {BY_DESIGN}")
    if figures.near_tie is False:
        return _inked("bad", f"! text differs {where}", "! differs")
    gap_text = "" if gap is None else f", gap {short(gap, 3)}"
    verdict = f" (near tie{gap_text})" if figures.near_tie else ""
    return _inked("warn", f"~ text differs {where}{verdict}", f"~ differs {where}", "~ differs")


def _inked(ink: Ink, *wordings: str) -> tuple[Row, ...]:
    return tuple(((words, ink),) for words in wordings)


def gpu_wordings(gpus: Mapping[int, GpuLoad], joules_per_token: float | None = None) -> tuple[str, str]:
    """Long wording: all known values of each GPU, and the energy per token. Short wording: the load alone, as a range
    for several GPUs.
    """
    energy = "" if joules_per_token is None else f" {short(joules_per_token)} J/token"
    loads = sorted(gpu.load for gpu in gpus.values() if gpu.load is not None)
    ends = dict.fromkeys(percent(load) for load in (*loads[:1], *loads[-1:]))
    each = [f"{f'{number}: ' * (len(gpus) > 1)}{_gpu_values(gpu)}" for number, gpu in gpus.items()]
    return f"GPU {', '.join(each)}{energy}", f"GPU {'-'.join(ends) or '-'}"


def _gpu_values(gpu: GpuLoad) -> str:
    total = "" if gpu.total_bytes is None else f"/{gpu.total_bytes / 1e9:.0f}"
    values = (
        "" if gpu.load is None else percent(gpu.load),
        "" if gpu.used_bytes is None else f"{gpu.used_bytes / 1e9:.1f}{total} GB",
        "" if gpu.power_w is None else f"{gpu.power_w:.0f} W",
        "" if gpu.temperature_c is None else f"{gpu.temperature_c} C",
    )
    return " ".join(filter(None, values)) or "-"


_FAST = 0.6
"""A round is near its expected time if the expected time is at least this share of the measured time."""


def expected_words(state: RunState) -> tuple[str, ...]:
    """Two wordings of the estimated times; empty if unknown, and after the first round."""
    run, entry = state.run, state.figures().get(state.watched)
    if run is None or not run.expected or entry is None or entry.committed:
        return ()
    (levels, rows), rate = SIZES[-1], 1 / step_s(run.expected)
    plain = f"estimate: {short(rate, 1 if rate >= 1 else 2)} tokens/s plain"
    return f"{plain}, {ms(round_s(run.expected, levels, rows))} ms a round of {rows} rows", plain


def overhead_words(state: RunState) -> tuple[str, ...]:
    """A sentence on measured and estimated time of a round; empty if unknown."""
    run, entry = state.run, state.figures().get(state.watched)
    if not (run and run.expected and entry and is_warm(state, state.watched)):
        return ()
    rounds = entry.rounds - entry.left_out_rounds
    if rounds <= 0 or entry.drafted is None or entry.draft_forwards is None:
        return ()  # the method does not report its drafts
    measured = (entry.decode_s - entry.left_out_s) / rounds
    expected = round_s(run.expected, entry.draft_forwards / entry.rounds, 1 + entry.drafted / entry.rounds)
    rest = "the rest is a smaller share with larger models"
    if expected >= _FAST * measured:
        rest = "only smaller trees or smaller weights help much"
    needed = f"memory and arithmetic of this machine need {ms(expected)} ms by estimate"
    return (f"A round takes {ms(measured)} ms; {needed}, so {rest}.",)


_ROWS = 3
_LEAST_TREND = 4
_LONGEST_TREND = 24
_OUTCOME = 19
"""Minimum width of each of the first three cards, in cells."""
_BROAD = 160
"""Least width of the terminal, in cells, at which cards of knobs and times follow the first three cards."""


@dataclass(frozen=True)
class _Card:
    """`titles`, `values` and `notes` are wordings, the longest first."""

    room: int
    """Width of the card with its shortest wordings, in cells."""
    titles: tuple[str, ...]
    values: tuple[str, ...]
    notes: tuple[str, ...]
    ink: Ink = "strong"
    points: Sequence[float] = ()
    low: float = 0.0
    high: float = 1.0


def cards(scene: Scene, width: int, height: int) -> Rows:
    """As many of the first cards as fit; if `height` is below three rows, one line with only the values."""
    if height < _ROWS:
        return [_line(scene, width)]
    every = [*_outcome(scene), *([*_policy(scene), _timing(scene)] if width >= _BROAD else [])]
    ends = accumulate(card.room + 1 for card in every)
    shown = [card for card, end in zip(every, ends, strict=True) if end <= width] or every[:1]
    spare = max(0, width - sum(card.room + 1 for card in shown))
    rows: list[Row] = [(), (), ()]
    for index, card in enumerate(shown):
        size = card.room + spare // len(shown) + (index < spare % len(shown))
        for place, row in enumerate(_rows(card, size)):
            rows[place] = (*rows[place], *row)
    return [fit(row, width) for row in rows]


def _rows(card: _Card, room: int) -> tuple[Row, Row, Row]:
    value = best(room, *card.values)
    free = min(_LONGEST_TREND, room - len(value) - 3)
    bars = trend(card.points, free, card.low, card.high) if free >= _LEAST_TREND else ""
    edge: Row = (("▏", "frame"),)
    return (
        (*edge, (column(best(room, *card.titles), room), "dim")),
        (*edge, *fit(((value, card.ink), ("  ", "plain"), (bars, "bar")), room)),
        (*edge, (column(best(room, *card.notes), room), "dim")),
    )


def _outcome(scene: Scene) -> list[_Card]:
    state = scene.state
    figures, curves = state.pooled().get(state.watched), state.lane.curves
    per_round = ("tokens a round of guessing and checking", "tokens a round")
    guesses = ("guesses of the small model accepted", "guesses accepted")
    if figures is None:
        every = ("speed against plain decoding", "speed"), per_round, guesses
        return [_Card(_OUTCOME, titles, ("-",), ("",)) for titles in every]
    distinct = f"plain decoding 1; distinct 8-grams {short(figures.distinct_8grams)}"
    drafted = "not shown by this method" if figures.drafted is None else "no guesses"
    if figures.drafted:
        drafted = f"{figures.accepted} of {counted(figures.drafted, 'guess', 'es')}"
    kept = [len(event.accepted) / max(1, drafted_nodes(event)) for event in state.lane.past[-_LONGEST_TREND:]]
    mean, share = (short(figures.tokens_per_round),), (percent(figures.acceptance_rate),)
    notes = distinct, "plain decoding: 1"
    return [
        _speed(scene, figures),
        _Card(_OUTCOME, per_round, mean, notes, "first", curves.tokens.points, 1.0, scale_of(scene).top),
        _Card(_OUTCOME, guesses, share, (drafted,), "first", kept),
    ]


def _speed(scene: Scene, figures: Figures) -> _Card:
    state, rates = scene.state, scene.state.lane.curves.rate
    stalled = tuple(f"speed, {words}" for words in stall_notes(state.figures().values())[1:])
    own, plain = rate(state, state.watched), rate(state, "ar")
    speed = "warming up" if own is None else f"{short(own, 1)} tokens/s"
    values = times_plain(figures)[1:-1] if figures.speedup else no_speedup(figures) or (speed,)
    notes = [speed] if figures.speedup else [""]
    if state.watched == "ar":
        values, notes = (speed,), ["this is plain decoding"]
    elif own is not None and plain is not None:
        notes = [f"{speed}, plain {short(plain, 1)}", speed]
    titles = (*stalled, "speed against plain decoding", "speed")
    points = rates.points[-_LONGEST_TREND:] or (1.0,)
    low = min(*points, 0.7 * max(points), max(points))  # ends that are 30 % apart let noise look small
    return _Card(_OUTCOME, titles, values, (*faster_preset(scene), *notes), "first", rates.points, low, max(points))


def _policy(scene: Scene) -> list[_Card]:
    """Cards of the knobs, or of the verifier of sampled trees."""
    lane, scale_end = scene.state.lane, deepest(scene)
    limits, curves = limited(lane) or ("",), lane.curves
    if lane.knobs is None:
        levels = (f"{lane.samples[-1].depth}" if lane.samples else "-",)
        cards = [_Card(13, ("levels guessed",), levels, limits, "third", curves.depth.points, 0.0, scale_end)]
        rules, shape = drawing(scene.state), shape_of(scene.state)
        if rules is not None:
            notes = (f"{rules.drafting} {shape_written(shape)}", shape_written(shape)) if shape else (rules.drafting,)
            cards.append(_Card(12, ("verifier, drafting", "verifier"), (rules.verifier,), notes, "second"))
        return cards
    base, d0 = (f"base depth D0, at most {scale_end - 1:.0f}", "base depth D0"), (f"{math.floor(lane.knobs.d0 + 0.5)}",)
    sure, guesses = ("sure from τh / unsure below τl", "sure/unsure"), ("fewest / most guesses", "τh / τl")
    taus = (f"{short(lane.knobs.tau_h)} / {short(lane.knobs.tau_l)}",)
    depth = _Card(13, base, d0, limits, "second", curves.d0.points, 0.0, scale_end)
    return [depth, _Card(11, sure, taus, guesses, "second", curves.tau_h.points)]


def _timing(scene: Scene) -> _Card:
    newest = scene.state.lane.newest
    parts = (newest.draft_s, newest.verify_s, newest.commit_s) if newest else ()
    spent = [ms(part, 1) for part in parts] or ["-"]
    titles, notes = ("ms of the last round", "ms last round"), ("draft · check · keep", "draft·chk·keep")
    return _Card(14, titles, (" · ".join(spent), "/".join(spent)), notes)


def _line(scene: Scene, width: int) -> Row:
    state = scene.state
    figures, knobs = state.pooled().get(state.watched), state.lane.knobs
    if figures is None:
        return fit(((" a small model guesses, a large one checks", "dim"),), width)
    speed = times_plain(figures)[-2] if figures.speedup and state.watched != "ar" else ""
    texts: list[Span] = [
        (f" {speed or f'{short(rate(state, state.watched), 0)} tokens/s'}", "first"),
        (f"  {short(figures.tokens_per_round)} tokens a round", "first"),
        (f"  {percent(figures.acceptance_rate)} of guesses accepted", "first"),
    ]
    if knobs is not None:
        values = ("D0", knobs.d0, 1), ("τh", knobs.tau_h, 2), ("τl", knobs.tau_l, 2)
        texts += [(f"  {name} {short(value, digits)}", "second") for name, value, digits in values]
    return fitting([(text,) for text in texts], width)
