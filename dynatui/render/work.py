"""Cost and use of drafted nodes: drafted and used nodes by depth, time by stage, accepted share of tokens by kind."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest

from decoder.analysis.bottleneck import explained
from decoder.analysis.metrics import Levels, Tally
from dynatui.number_format import ms, percent
from dynatui.render.cards import overhead_words
from dynatui.render.ink import Row, Rows, fit, framed, joined, share, titled, trend, wrapped
from dynatui.render.scene import Scene
from dynatui.render.words import remedy
from dynatui.state.run_state import RunState
from dynatui.state.tokens import Token

_SIDE_BY_SIDE = 64
_GAP = 3
_TIMES = 5
_SHORTEST_BAR = 2
_LONGEST_TREND = 24
_NEWEST = 2000
"""Number of newest tokens whose kinds are counted; the limit bounds the cost in a long run."""
_KINDS = (
    ("words", re.compile(r"( [^\W\d_]+)+")),
    ("word parts", re.compile(r"[^\W\d_]+")),
    ("numbers", re.compile(r" ?\d+")),
    ("blanks", re.compile(r"\s+")),
    ("punctuation", re.compile(r" ?[.,;:!?'\"()\u2018\u2019\u201c\u201d\u2014\u2026-]+")),
    ("code and signs", re.compile(r".+", re.DOTALL)),
)


@framed
def work(scene: Scene, width: int, height: int) -> tuple[Row, Rows]:
    state, title = scene.state, titled("Work", "cost and use of the guesses")
    tally = state.race.tallies.get(state.watched)
    if tally is None or state.lane.newest is None:
        return title, [(("use of the drafted nodes, and time by stage", "dim"),)]
    summary = wrapped([(_summary(state.watched, tally), "plain")], width)
    room = height - len(summary)
    beside = width >= _SIDE_BY_SIDE
    left = (width - _GAP) // 2 if beside else width
    right = width - _GAP - left if beside else width
    guesses = depths(tally.by_depth, left, room if beside else max(2, room - _TIMES))
    tables = [*times_table(state, tally, right), *kinds(state.lane.tokens, right)]
    pairs = zip_longest(guesses, tables, fillvalue=())
    rows = [*summary, *([(*fit(a, left + _GAP), *b) for a, b in pairs] if beside else [*guesses, *tables]), ()]
    for sentence in (*explained(state.race, state.watched, state.watched, remedy(scene)), *overhead_words(state)):
        lines = wrapped([(sentence, "plain")], width)
        if len(rows) + len(lines) > height:
            break
        rows += lines
    return title, rows


def _summary(method: str, tally: Tally) -> str:
    if not tally.knows_tree:
        return f"{method} does not show its draft, so only the method's time is known."
    if tally.drafted == 0:
        return f"{method} guesses nothing: each token is one pass of the target."
    first = percent(share(tally.by_depth[0][1], tally.rounds))
    return f"Of {tally.drafted} drafted nodes {tally.accepted} were used; depth 1 right in {first} of rounds."


def depths(levels: Levels, width: int, room: int) -> Rows:
    """A bar for each depth: used nodes, then wasted nodes; if rows are too few, the deepest levels share a bar."""
    if not levels or room < 1:
        return []
    names = [str(depth) for depth in range(1, len(levels) + 1)]
    rows = max(1, room - 1)
    if len(levels) > rows:
        deep = levels[rows - 1 :]
        names = [*names[: rows - 1], f"{rows}+"]
        levels = (*levels[: rows - 1], (sum(level[0] for level in deep), sum(level[1] for level in deep)))
    counts = [f"{used}/{drafted}" for drafted, used in levels]
    name, count = max(map(len, (*names, "depth"))), max(map(len, (*counts, "used")))
    length = max(_SHORTEST_BAR, width - name - count - len("  100%") - 2)
    longest = max(drafted for drafted, _ in levels)
    legend: Row = (("█ used ", "accepted"), ("▒ wasted", "bar"))
    heading = (("depth ", "dim"), *fit(legend, length), (f" {'used':>{count}} share", "dim"))
    return [heading, *(_level(*row, longest, (name, length, count)) for row in zip(names, levels, counts, strict=True))]


def _level(label: str, level: tuple[int, int], count: str, most: int, widths: tuple[int, int, int]) -> Row:
    drafted, used = level
    name, length, room = widths
    whole = round(length * share(drafted, most))
    accepted_cells = min(whole, round(length * share(used, most)))
    return (
        (f"{label:>{name}} ", "dim"),
        ("█" * accepted_cells, "accepted"),
        ("▒" * (whole - accepted_cells), "bar"),
        (" " * (length - whole), "plain"),
        (f" {count:>{room}}  {percent(share(used, drafted)):>4}", "plain"),
    )


def times_table(state: RunState, tally: Tally, width: int) -> Rows:
    past, curves = state.lane.past, state.lane.curves
    last = past[-1]
    last_s = max(0.0, last.t - (past[-2].t if len(past) > 1 else 0.0))
    rated = tally.rated
    stages = (
        ("draft", last.draft_s, rated.draft_s, curves.draft_ms),
        ("verify", last.verify_s, rated.verify_s, curves.verify_ms),
        ("commit", last.commit_s, rated.commit_s, curves.commit_ms),
    )
    room = min(_LONGEST_TREND, width - len("verify   1234.5  1234.5  100%  "))
    rows: Rows = [((f"{'ms a round':<10}{'last':>6}{'mean':>8}{'share':>7}", "dim"),)]
    for name, own_s, total_s, curve in stages:
        mean_s = None if total_s is None else total_s / max(1, rated.rounds)
        bars = trend(curve.points, room, 0.0, max(curve.points[-_LONGEST_TREND:], default=1.0))
        recent: Row = ((f"  {bars}", "bar"),) if room >= _SHORTEST_BAR and mean_s is not None else ()
        rows.append((*_time(name, own_s, mean_s, share(total_s or 0.0, rated.decode_s)), *recent))
    timed = [(own_s, total_s) for _, own_s, total_s, _ in stages if own_s is not None and total_s is not None]
    if len(timed) == len(stages):
        rest_s = max(0.0, rated.decode_s - sum(total_s for _, total_s in timed))
        other_s = max(0.0, last_s - sum(own_s for own_s, _ in timed))
        rows.append(_time("other", other_s, rest_s / max(1, rated.rounds), share(rest_s, rated.decode_s)))
    return rows


def _time(name: str, last_s: float | None, mean_s: float | None, part_of_decoding: float) -> Row:
    whole = percent(part_of_decoding) if mean_s is not None else "-"
    return ((f"{name:<10}", "plain"), (f"{ms(last_s):>6}{ms(mean_s):>8}{whole:>7}", "plain"))


def kinds(tokens: Sequence[Token], width: int) -> Rows:
    counted = [token for token in tokens[-_NEWEST:] if token.text and token.origin != "plain"]
    total = Counter(kind_of(token.text) for token in counted)
    guessed = Counter(kind_of(token.text) for token in counted if token.origin == "accepted")
    if not guessed:
        return []
    parts: list[Row] = [
        ((f"{kind} ", "plain"), (percent(guessed[kind] / count), "strong")) for kind, count in total.most_common()
    ]
    return wrapped([("guessed: ", "dim"), *joined(parts, ((", ", "dim"),))], width)


@lru_cache(maxsize=4096)
def kind_of(text: str) -> str:
    return next(kind for kind, pattern in _KINDS if pattern.fullmatch(text))
