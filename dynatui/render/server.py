"""Panels of a watched server, without control characters; unknown figures are dashes, failed polls gaps in curves."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import fmean
from typing import TypeAlias

from decoder.append_only import SharedList
from dynatui.clean import clean_line
from dynatui.number_format import count, counted, ms, percent, short
from dynatui.render.curves import Axis, CurveLine, chart, legend
from dynatui.render.ink import (
    Column,
    Ink,
    Row,
    Rows,
    Sheet,
    Span,
    bar,
    best,
    column,
    fit,
    fitting,
    frame,
    inside,
    joined,
    merged,
    titled,
    trend,
    wrapped,
)
from dynatui.servers.attach.events import Answer, Drafting, Figures, Gap, Load, Wasted
from dynatui.session import Symbols
from dynatui.state.lane import Curve
from dynatui.state.server_state import ServerState, compared, line_of, remark, verdict


def wasted(waste: Wasted, t: float) -> tuple[str, str]:
    """Long and short alarm. L-bar is an upper bound of the speed-up: a round takes at least as long as a plain pass."""
    duration, share, length = time_text(t - waste.since), percent(waste.acceptance_rate), short(waste.tokens_per_round)
    of_drafted = f"{share} of {count(waste.drafted)} drafted tokens accepted"
    bound = f"{length} tokens a round, so at most {length} times as fast as without drafts, even if they cost nothing"
    return (
        f"drafts wasted for {duration}: {of_drafted}, {bound}; decoding is likely slower",
        f"drafts wasted for {duration}: {share} accepted, likely slower than without drafts",
    )


def summary(state: ServerState) -> str:
    if state.reading is None or state.server is None:
        return ""
    session, title = state.reading.session, state.kind.title if state.kind else state.server.kind
    figures = f"L-bar {short(session.tokens_per_round)}, acceptance rate {short(session.acceptance_rate)}"
    speed = f"{short(session.tokens_per_second, 1)} tokens/s"
    alarm = f"; {wasted(state.wasted, state.t)[-1]}" if state.wasted else ""
    return clean_line(f"{title} at {state.server.url}, watched for {time_text(state.t)}: {figures}, {speed}{alarm}")


def time_text(seconds: float) -> str:
    """A duration in its two largest units: 12 s, 3 min 4 s, 5 h 6 min."""
    whole = int(min(seconds, 1e9))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


WINDOW = 300
"""Maximum length of the curves' window, in polls."""
_LEAST_LENGTH, _LEAST_SPEED = 4.0, 10.0
"""Least upper end of the axis of tokens per round, and least upper end of the axis of tokens per second."""
_LONGEST_BAR, _LONGEST_NAME = 40, 64
_CARD_ROWS = 3
_LONGEST_DRAFT_NAME, _LONGEST_VALUE = 32, 10
_WITH_OWN = "all figures except the steps include the target's own token; acceptance by position is not reported"
_TOTAL_NAME = len("generated tokens")
_STAGES = (1, 2, 5)
"""Lengths of the curves' window, in fifths of the maximum; the window grows with the session."""

Figure: TypeAlias = Callable[[Figures], float | None]
Size: TypeAlias = tuple[int, int]
"""Width and height of a panel, in cells."""


@dataclass(frozen=True)
class ServerView:
    paused: bool = False
    recording: bool = False
    replaying: bool = False
    ended: bool = False
    symbols: Symbols = "braille"


@dataclass(frozen=True)
class _Card:
    titles: tuple[str, ...]
    figure: Figure
    digits: int = 2

    def value(self, figures: Figures | None) -> str:
        return short(self.figure(figures) if figures else None, self.digits)


_CARDS = (
    _Card(("L-bar, tokens a round", "L-bar"), lambda figures: figures.tokens_per_round),
    _Card(("acceptance rate", "acc. rate"), lambda figures: figures.acceptance_rate),
    _Card(("generated tokens/s", "generated/s"), lambda figures: figures.tokens_per_second, 1),
    _Card(("drafted tokens/s", "drafted/s"), lambda figures: figures.drafted_per_second, 1),
    _Card(("accepted tokens/s", "accepted/s"), lambda figures: figures.accepted_per_second, 1),
)


def status(state: ServerState, look: ServerView, width: int) -> Row:
    return fitting([*_head(state, look), *_names(state)], width)


def _head(state: ServerState, look: ServerView) -> list[Row]:
    recording: list[Row] = [(("● REC  ", "bad"),)] if look.recording else []
    title = state.kind.title if state.kind else state.server.kind if state.server else ""
    named: Row = ((clean_line(title), "strong"), ("  ", "plain"))
    return [((" dynatui ", "logo"), ("  ", "plain")), (_doing(state, look), ("  ", "plain")), *recording, named]


def _names(state: ServerState) -> list[Row]:
    """Models and URL; a text longer than `_LONGEST_NAME` is cut."""
    server, opening = state.server, state.opening
    url = server.url if server else opening.url if opening else ""
    named: tuple[tuple[str, Ink], ...] = ((", ".join(server.models) if server else "", "plain"), (url, "dim"))
    return [((best(_LONGEST_NAME, clean_line(text)), ink), ("  ", "plain")) for text, ink in named if text]


def _doing(state: ServerState, look: ServerView) -> tuple[str, Ink]:
    if look.paused:
        return "PAUSED", "warn"
    if state.missing_since is not None:
        return f"NO METRICS for {time_text(state.t - state.missing_since)}", "bad"
    if look.ended:
        return "replay ended" if look.replaying else "ended", "good"
    if state.reading is None:
        return "connecting", "warn"
    return _judged(state) or ("replaying" if look.replaying else "connected", "good")


def _judged(state: ServerState) -> tuple[str, Ink] | None:
    if state.findings and state.promise is not None:
        return "PROMISE NOT KEPT", "bad"
    if state.wasted is not None:
        return "DRAFTS WASTED", "bad"
    if state.findings:
        return state.findings[0].cause.upper(), "bad"
    return ("promise kept", "good") if verdict(state, final=True).kept else None


def note(state: ServerState, look: ServerView, size: Size) -> Rows:
    del look
    (width, height), (wordings, ink) = size, _remark(state)
    candidates = [[row for text in each for row in wrapped([(text, ink)], max(1, width - 2))] for each in wordings]
    candidates = candidates or [wrapped(joined(_names(state), ()), max(1, width - 2))]
    rows = next((rows for rows in candidates if len(rows) <= height), candidates[-1])[:height]
    return [fit(((" ", "plain"), *row), width) for row in [*rows, *[()] * (height - len(rows))]]


def _remark(state: ServerState) -> tuple[Sequence[Sequence[str]], Ink]:
    """The remark on the server, in wordings (longest first) of one or more paragraphs, and its colour."""
    if state.findings and state.gap is None:
        claims = [clean_line(finding.claim) for finding in state.findings]
        more = [f"{claims[0]} (and {counted(len(claims) - 1, 'finding')} more)"] if claims[1:] else claims
        return ([line_of(finding) for finding in state.findings], claims, more), "bad"
    if state.wasted is not None and state.gap is None:
        return [[text] for text in wasted(state.wasted, state.t)], "bad"
    text = clean_line(remark(state))
    if text:
        return [[text]], "warn" if state.gap else "dim"
    if state.promise is not None and state.reading is not None:
        return [[clean_line(f"{state.promise.profile}, draft {state.promise.draft}: {compared(state)}")]], "dim"
    return (), "dim"


def cards(state: ServerState, width: int, height: int) -> Rows:
    reading, last = state.reading, None if state.gap or state.reading is None else state.reading.interval
    if height < _CARD_ROWS:
        return [fitting([((f" {card.titles[-1]} ", "dim"), (card.value(last), "first")) for card in _CARDS], width)]
    room = max(1, width // len(_CARDS) - 1)
    session = [card.value(reading.session if reading else None) for card in _CARDS]
    rows: tuple[tuple[Ink, list[str]], ...] = (
        ("dim", [best(room, *card.titles) for card in _CARDS]),
        ("first", [card.value(last) for card in _CARDS]),
        ("dim", [best(room, f"session {value}", value) for value in session]),
    )
    edge: Row = (("▏", "frame"),)
    return [fit(joined([((column(text, room), ink),) for text in texts], edge), width) for ink, texts in rows]


def lengths(state: ServerState, look: ServerView, size: Size) -> Rows:
    length, rate = (series(state, card.figure) for card in _CARDS[:2])
    left = CurveLine(length, 1.0, _top(_finite(length), _LEAST_LENGTH), "first")
    right = CurveLine(rate, 0.0, 1.0, "second", "dotted")
    return _curves(state, look, size, {"L-bar": left, "acceptance": right})


def speeds(state: ServerState, look: ServerView, size: Size) -> Rows:
    generated, accepted = (series(state, card.figure) for card in (_CARDS[2], _CARDS[4]))
    top = _top([*_finite(generated), *_finite(accepted)], _LEAST_SPEED)
    left = CurveLine(generated, 0.0, top, "first", digits=0)
    right = CurveLine(accepted, 0.0, top, "second", "dotted", digits=0)
    return _curves(state, look, size, {"tokens/s": left, "accepted/s": right})


def _curves(state: ServerState, look: ServerView, size: Size, lines: Mapping[str, CurveLine]) -> Rows:
    left, right = lines.values()
    title = legend((left, right), tuple(lines))
    return frame(title, chart(left, right, (), _axis(state), inside(size), look.symbols), size)


def series(state: ServerState, figure: Figure) -> Curve:
    """A point for each second with a poll: mean figure of the intervals that ended in this second; NaN if unknown."""
    seconds = dict[int, list[float]]()
    for poll in state.past[-WINDOW:]:
        value = None if isinstance(poll, Gap) else figure(poll.interval)
        seconds.setdefault(round(poll.t), []).extend([] if value is None else [value])
    return Curve(SharedList(fmean(values) if values else math.nan for values in seconds.values()), SharedList(seconds))


def _axis(state: ServerState) -> Axis:
    """The time axis. Its window grows, then moves in steps of a tenth of its length, so most dots stay in place."""
    fifth = round(WINDOW * (state.opening.interval_s if state.opening else 1.0)) // 5
    span = max(10, next((stage * fifth for stage in _STAGES if state.t <= stage * fifth), fifth * _STAGES[-1]))
    step = span // 10
    return Axis(max(0, math.ceil((state.t - span) / step) * step), span, unit="second")


def _finite(curve: Curve) -> list[float]:
    return [point for point in curve.points if math.isfinite(point)]


def _top(values: Sequence[float], least: float) -> float:
    """Upper end of a scale: the next larger round number, so that the scale seldom changes."""
    highest = max((least, *values))
    power = 10.0 ** math.floor(math.log10(highest))
    return next(step * power for step in (1, 2, 4, 5, 10) if step * power >= highest)


def positions(state: ServerState, size: Size) -> Rows:
    """Acceptance by position in the draft; for a server that reports only sizes of its drafts, these sizes."""
    width, room = inside(size)
    reading = state.reading
    by_drafts = reading is not None and reading.session.drafted_by_position
    title = titled("Acceptance by position", f"share of {'drafts' if by_drafts else 'rounds'}")
    whole = reading.session.acceptance_by_position if reading else []
    if reading is not None and reading.drafting is not None and not whole:
        return _drafting(reading.drafting, size)
    if reading is None or not whole:
        unknown = "the server does not report acceptance by position, or has drafted nothing since the watch began"
        return frame(title, wrapped([(unknown if reading else "no metrics were read yet", "dim")], width), size)
    newest = () if state.gap else reading.interval.acceptance_by_position
    promised = state.seen.chain.rates if state.seen and state.seen.chain else ()
    sheet = Sheet(_SHARES[: 2 + bool(promised)], width)
    length = max(1, min(_LONGEST_BAR, width - len("position ") - sheet.cells))
    rows: Rows = [((f"position {'':{length}}{sheet.heads}", "dim"),)]
    for number, shares in enumerate(zip_longest(whole, newest[: len(whole)], promised[: len(whole)]), 1):
        filled: Span = (bar(shares[0] or 0.0, length), "accepted")
        rows.append(((f"{number:>8} ", "dim"), filled, (sheet.row(shares), "strong")))
    more = len(rows) - room
    return frame(title, rows if more <= 0 else [*rows[: max(0, room - 1)], ((f"{more + 1} more", "dim"),)], size)


_SHARES: tuple[Column[Sequence[float | None]], ...] = (
    Column("session", 8, lambda shares: percent(shares[0])),
    Column("now", 7, lambda shares: percent(shares[1])),
    Column("promised", 9, lambda shares: percent(shares[2])),
)


def _drafting(drafts: Drafting, size: Size) -> Rows:
    width = max(1, inside(size)[0])
    lines = (
        (drafts.steps, 0, ("draft steps per round", "steps")),
        (drafts.draft_tokens, 0, ("limit of verified tokens", "tokens")),
        (drafts.cap_length, 2, ("mean number verified", "verified")),
        (drafts.block_accept_length, 2, ("L-bar if all were verified", "uncapped")),
    )
    room = max(1, min(_LONGEST_DRAFT_NAME, width - _LONGEST_VALUE))
    rows: Rows = [
        ((column(best(room, *names), room), "plain"), (f"{short(figure, digits):>{_LONGEST_VALUE}}", "strong"))
        for figure, digits, names in lines
        if figure is not None
    ]
    return frame(titled("Drafts", "as they are now"), [*rows, *wrapped([(_WITH_OWN, "dim")], width)], size)


_COUNTED: tuple[tuple[str, Figure], ...] = (
    ("rounds", lambda figures: figures.drafts),
    ("drafted tokens", lambda figures: figures.drafted),
    ("accepted tokens", lambda figures: figures.accepted),
    ("generated tokens", lambda figures: figures.generated),
)


def totals(state: ServerState, size: Size) -> Rows:
    reading, width = state.reading, inside(size)[0]
    both = (reading.session, reading.interval) if reading else (None, None)
    room = min(14, max(9, (width - _TOTAL_NAME) // 2))
    rows: Rows = [((f"{'':<{_TOTAL_NAME}}{'session':>{room}}{'interval':>{room}}", "dim"),)]
    for name, figure in _COUNTED:
        session, now = (count(figure(each)) if each else "-" for each in both)
        rows.append(((f"{name:<{_TOTAL_NAME}}", "plain"), (f"{session:>{room}}", "strong"), (f"{now:>{room}}", "dim")))
    if state.course.load is not None and reading is not None:
        rows.append(((_load(state.course.load, reading.interval, width), "plain"),))
    watched = best(width, f"watched for {time_text(state.t)}, {state.readings} pages read", f"for {time_text(state.t)}")
    missed = f"failed polls {state.missed}, gaps {state.gaps}, restarts {state.restarts}"
    return frame(titled("Totals"), [*rows, ((watched, "dim"),), ((missed, "dim"),)], size)


def _load(load: Load, interval: Figures, width: int) -> str:
    requests = f"{count(load.running)} running, {count(load.waiting)} waiting"
    latency = f"{ms(interval.token_latency_s, 1)} ms a token"
    return best(width, f"requests: {requests}; {latency}", f"{requests}, {latency}", requests)


_TITLE: Row = (
    *(("Our request", "title"), (" ─ ", "dim"), ("█", "accepted"), (" all ", "dim"), ("▄", "bar"), (" some ", "dim")),
    *(("·", "bar"), (" none accepted in a round", "dim")),
)


def answer(state: ServerState, size: Size) -> Rows:
    answered, room = state.answer, inside(size)[1]
    width = max(1, inside(size)[0])
    if answered is None:
        return frame(titled("Our request"), _waiting(state, width), size)
    if answered.error:
        return frame(titled("Our request"), wrapped([(clean_line(answered.error), "warn")], width), size)
    summary = wrapped([(_summary(answered), "strong")], width)
    highest = max((1, *answered.drafted_by_round))
    cells: list[Span] = [
        (trend([accepted], 1, 0.0, highest) if accepted else "·", "accepted" if accepted == drafted else "bar")
        for accepted, drafted in zip(answered.accepted_by_round, answered.drafted_by_round, strict=True)
    ]
    columns = [merged(cells[start : start + width]) for start in range(0, len(cells), width)]
    title, rounds = (_TITLE, columns) if columns else (titled("Our request"), wrapped([(_reason(state), "dim")], width))
    text = wrapped([(clean_line(answered.text), "plain")], width)
    return frame(title, [*summary, *rounds[: max(1, room - len(summary) - 1)], *text][: max(0, room)], size)


def _waiting(state: ServerState, width: int) -> Rows:
    if state.request is None:
        return []
    sent: Row = ((f"sent {time_text(state.t - state.request.t)} ago, no answer yet:", "strong"),)
    return [*wrapped(sent, width), *wrapped([(clean_line(state.request.prompt), "dim")], width)]


def _summary(answered: Answer) -> str:
    parts = (
        (answered.rounds, f"{count(answered.rounds)} rounds"),
        (answered.tokens_per_round, f"L-bar {short(answered.tokens_per_round)}"),
        (answered.acceptance_rate, f"{percent(answered.acceptance_rate)} accepted"),
        (answered.seconds, f"{count(answered.generated)} tokens in {short(answered.seconds, 1)} s"),
    )
    return ", ".join(text for figure, text in parts if figure is not None)


def _reason(state: ServerState) -> str:
    if state.kind is not None and state.kind.name == "vllm":
        return "vLLM reports each round if it is started with --per-request-spec-decode-metrics detailed"
    return f"{state.kind.title if state.kind else 'the server'} does not report rounds one by one"
