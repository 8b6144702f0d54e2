"""The text, token by token, coloured by origin, draft probability, round or time, with the cursor; beside it the text
that plain decoding has written in the same time.

In a full panel, the text scrolls by a quarter of the height at once, so that most frames change only one row.
"""

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import chain, pairwise, takewhile

from rich.cells import cell_len, set_cell_size

from decoder.append_only import SharedList
from dynatui.number_format import counted, short
from dynatui.render.guide import IDEA, caption
from dynatui.render.ink import (
    DOT,
    Flow,
    Ink,
    Line,
    Row,
    Rows,
    Span,
    best,
    best_row,
    fit,
    frame,
    inked,
    inside,
    is_gap,
    joined,
    width_of,
    wrapped,
)
from dynatui.render.rounds import piece_text
from dynatui.render.scene import Heat, Scene
from dynatui.state.lane import LaneState
from dynatui.state.run_state import Failure, RunState
from dynatui.state.tokens import Origin, Token

_PROMPT = -1
"""Tag of a span of the prompt; any other tag is an index into the state's tokens."""
_ROOM_FOR_PROMPT = 6
"""Least height of the panel, in rows, at which its first row shows the prompt."""
_PROMPT_SIGN = "prompt: "
_CUT = "… panel 8 shows the whole message"
_FEW_ROWS = 3
"""In a panel of at most this number of rows, the text scrolls line by line."""
_BETWEEN: Row = ((" │ ", "frame"),)
_LEAST_BESIDE, _LEAST_BELOW = 28, 7
"""Least width of each of two texts, in cells; least height of two texts, one below the other, in rows."""
HOT: tuple[Ink, ...] = ("heat1", "heat2", "heat3", "heat4", "heat5")
"""Inks of a scale from calm (probable or fast tokens) to hot (improbable or slow tokens)."""
BANDS: tuple[Ink, Ink] = ("plain", "band")
_ORIGINS: dict[Origin, Ink] = {"prompt": "prompt", "accepted": "accepted", "bonus": "bonus", "plain": "plain"}
_PROBABILITIES = (0.2, 0.4, 0.6, 0.8)
_TIMES = (0.5, 0.8, 1.25, 2.0)
"""Limits between the five inks for token times, as multiples of the median time."""


class _Column:
    def __init__(self) -> None:
        self.flow = Flow[int](1)
        self.tokens: SharedList[Token] = SharedList()
        self.top = 0
        self._prompt = ""

    def wrap(self, prompt: str, tokens: SharedList[Token], width: int) -> None:
        count = len(self.tokens)
        same = max(1, width) == self.flow.width and prompt == self._prompt
        if not same or count == 0 or not tokens.begins_with(self.tokens):
            self.flow, self._prompt, self.top, count = Flow(width), prompt, 0, 0
            self.flow.add(prompt, _PROMPT)
        for index in range(count, len(tokens)):
            self.flow.add(tokens[index].text, index)
        self.tokens = tokens

    def scroll(self, line: int, height: int) -> None:
        if len(self.flow.lines) <= height:
            self.top = 0
        elif not self.top <= line < self.top + height:
            most = height if height <= _FEW_ROWS else 3 * height // 4
            before = max(1, most) - 1 if line >= self.top + height else height // 4
            self.top = max(0, line - before)

    def rows(self, height: int) -> range:
        return range(self.top, min(self.top + height, len(self.flow.lines)))


class TextPanel:
    def __init__(self) -> None:
        self._own, self._plain = _Column(), _Column()
        self._head = 0
        self._size = (0, 0)
        self._place = (0, 0)
        self._height = 0

    def __call__(self, scene: Scene, width: int, height: int) -> Rows:
        self._size = size = (width, height)
        inner, room = inside(size)
        state = scene.state
        if state.failure or state.run is None:
            self._own, self._plain = _Column(), _Column()
        if state.failure:
            return frame((("Error", "bad"),), _failure(scene, state.failure, inner, room), size)
        if state.run is None:
            return frame((("Text", "title"),), _welcome(scene, inner), size)
        below = caption(scene, inner, room)
        room -= len(below)
        beside = scene.beside and scene.mode == "watch" and state.watched != "ar" and "ar" in state.lanes
        if beside and inner >= 2 * _LEAST_BESIDE + width_of(_BETWEEN):
            page = self._side_by_side(scene, (inner - width_of(_BETWEEN)) // 2, room)
        elif beside and inner >= _LEAST_BESIDE and room >= _LEAST_BELOW:
            page = self._one_below_the_other(scene, inner, room)
        else:
            beside, self._place = False, (0, 0)
            page = self._page(scene, inner, room)
        return frame(legend(scene, width - 6, beside=beside), [*page, *below], size)

    def token_at(self, x: int, y: int) -> int | None:
        inner, room = inside(self._size)
        left, top = (self._size[0] - inner) // 2 + self._place[0], (self._size[1] - room) // 2 + self._place[1]
        line, lines = self._own.top + y - top - self._head, self._own.flow.lines
        if not (0 <= x - left < self._own.flow.width and self._head <= y - top < self._height and line < len(lines)):
            return None
        tag = _tag_at(lines[line], x - left)
        return tag if tag is not None and 0 <= tag < len(self._own.tokens) else None

    def moved(self, cursor: int, lines: int) -> int:
        """The token that is `lines` lines below `cursor`, but not beyond the first or last line."""
        lines_shown = self._own.flow.lines
        home = _line_of(lines_shown, cursor)
        before = takewhile(lambda stretch: stretch[1] != cursor, lines_shown[home])
        column = sum(cell_len(text) for text, _ in before)
        step = -1 if lines > 0 else 1
        for line in range(max(0, min(home + lines, len(lines_shown) - 1)), home, step):
            tags = [tag for _, tag in lines_shown[line] if tag != _PROMPT]
            if tags:
                tag = _tag_at(lines_shown[line], column)
                return tags[-1] if tag is None else max(tag, tags[0])
        return cursor

    def _side_by_side(self, scene: Scene, width: int, height: int) -> Rows:
        plain, own = _headings(scene.state, width)
        self._place = width + width_of(_BETWEEN), 1
        right = [own, *self._page(scene, width, height - 1)]
        left = [plain, *self._plain_page(scene.state, width, height - 1, self._head)]
        return [(*fit(before, width), *_BETWEEN, *after) for before, after in zip(left, right, strict=True)]

    def _one_below_the_other(self, scene: Scene, width: int, height: int) -> Rows:
        plain, own = _headings(scene.state, width)
        upper = max(3, 2 * height // 5)
        self._place = 0, upper + 1
        below = [own, *self._page(scene, width, height - upper - 1)]
        return [plain, *self._plain_page(scene.state, width, upper - 1), *below]

    def _plain_page(self, state: RunState, width: int, height: int, head: int = 0) -> Rows:
        """Text of plain decoding, scrolled like the watched text as long as the end of the plain text stays visible.

        `head`: number of rows with the prompt.
        """
        column, tokens = self._plain, state.lanes["ar"].tokens
        column.wrap(state.prompt_text, tokens, width)
        lines, height = column.flow.lines, height - head
        if self._own.top <= len(lines) - 1 < self._own.top + height:
            column.top = self._own.top
        else:
            column.scroll(len(lines) - 1, height)

        def ink_of(text: str, tag: int) -> Ink:
            return "plain" if is_gap(text) else "prompt" if tag == _PROMPT else _ORIGINS[tokens[tag].origin]

        page = [inked(lines[y], ink_of) for y in column.rows(height)]
        return _padded(page, state.prompt_text, head, (width, height), written="ar" not in state.ends)

    def _page(self, scene: Scene, width: int, height: int) -> Rows:
        self._height = height
        state = scene.state if scene.place.live else scene.newest_state
        tokens, shown = state.lane.tokens, len(scene.state.lane.tokens)
        self._own.wrap(state.prompt_text, tokens, width)
        lines, cursor = self._own.flow.lines, scene.cursor if scene.inspected else None
        newest = len(lines) - 1 if shown == len(tokens) else _line_of(lines, max(0, shown - 1))
        home = newest if cursor is None else _line_of(lines, cursor)
        self._head = int(len(lines) > height >= _ROOM_FOR_PROMPT)
        height -= self._head
        self._own.scroll(home, height)
        by_heat, hits = inks(scene.heat, tokens), frozenset(chain.from_iterable(scene.hits))

        def ink_of(text: str, tag: int) -> Ink:
            if tag == cursor:
                return "caret"
            if tag in hits:
                return "hit"
            if is_gap(text) and (tag == _PROMPT or scene.heat != "round"):
                return "plain"
            if tag >= shown and cursor is None:
                return "ghost"
            return "prompt" if tag == _PROMPT else by_heat(tokens[tag])

        rows = self._own.rows(height)
        page = [inked(lines[y], ink_of) for y in rows]
        if cursor is not None and home in rows:
            marked = [text for line in lines[home : home + 2] for text, tag in line if tag == cursor]
            if not any(marked):  # a newline token has no width
                page[home - rows.start] = _with_sign(lines[home], cursor, tokens[cursor].text, ink_of, width)
        written = state.watched not in state.ends and rows.stop == len(lines)
        return _padded(page, state.prompt_text, self._head, (width, height), written=written)


def _padded(page: Rows, prompt: str, head: int, size: tuple[int, int], *, written: bool) -> Rows:
    """The page below `head` rows with the prompt; if the text is still `written`, with a pen at its end."""
    if written and page:
        page[-1] = (*page[-1], ("▌", "dim"))
    return [*[_reminder(prompt, size[0])] * head, *page, *[()] * (size[1] - len(page))]


def _headings(state: RunState, width: int) -> tuple[Row, Row]:
    """Headings of plain decoding and of the watched method; the second states the method's lead in tokens."""
    plain, own, gap = state.lanes["ar"].committed, state.lane.committed, tokens_ahead(state)
    words = f"{gap} ahead" if gap > 0 else f"{-gap} behind" if gap < 0 else "level"
    ended = " at the end" if {"ar", state.watched} & state.ends.keys() else ""
    ahead: Span = (words + ended, "good" if gap > 0 else "warn" if gap < 0 else "plain")
    long: Row = ((f"{state.watched}: ", "title"), (f"{counted(own, 'token')}, ", "plain"), ahead)
    plain_words = best(width, f"plain decoding: {counted(plain, 'token')}", f"plain: {plain}")
    return ((plain_words, "title"),), best_row(width, long, (ahead,))


def tokens_ahead(state: RunState) -> int:
    """Lead of the watched method over plain decoding, in tokens, at the decode time that both have reached."""
    lanes = state.lane, state.lanes["ar"]
    end_s = min(lane.newest.t if lane.newest else 0.0 for lane in lanes)

    def written(lane: LaneState) -> int:
        count = bisect_right(lane.past, end_s, key=lambda event: event.t)
        return lane.past[count - 1].position + len(lane.past[count - 1].committed) if count else 0

    return written(lanes[0]) - written(lanes[1])


def _line_of(lines: Sequence[Line[int]], token: int) -> int:
    """Index of the line with the visible part of a token, whose leading blank may be on the line before."""
    first = bisect_left(lines, token, key=lambda line: line[-1][1] if line else token)
    for place in range(first, min(first + 2, len(lines))):
        if any(tag == token and text.strip() for text, tag in lines[place]):
            return place
    return min(first, len(lines) - 1)


def _tag_at(line: Line[int], column: int) -> int | None:
    """Tag of the text at a column of the line; None after the line's end."""
    for text, tag in line:
        column -= cell_len(text)
        if column < 0:
            return tag
    return None


def _with_sign(line: Line[int], token: int, text: str, ink_of: Callable[[str, int], Ink], width: int) -> Row:
    """The line with a visible character in place of a token of zero width."""
    place = next((i for i, (_, tag) in enumerate(line) if tag == token), len(line))
    before = inked(line[:place], ink_of)
    if width_of(before) >= width:
        before = fit(before, width - 1)
    return (*before, (piece_text(text)[:1], "caret"), *inked(line[place:], ink_of))


def _reminder(prompt: str, width: int) -> Row:
    """The prompt in one row; a long prompt is cut to its beginning and its end, which often contains the question."""
    room = max(0, width - len(_PROMPT_SIGN))
    begin, end = (" ".join(part.split()) for part in (prompt[: 2 * width], prompt[-2 * width :]))
    if len(prompt) > 2 * width or cell_len(begin) > room:
        half = room // 2
        begin = f"{set_cell_size(begin, max(0, room - half - 1))}…{set_cell_size(end[::-1], half)[::-1]}"
    return ((_PROMPT_SIGN, "dim"), (begin, "prompt"))


def _welcome(scene: Scene, width: int) -> Rows:
    steps = pairwise(scene.state.loading)
    page: list[Span] = [
        (f"{IDEA}\n\n", "plain"),
        *((f"  done     {step.step}  {following.at_s - step.at_s:.1f} s\n", "dim") for step, following in steps),
        (f"  loading  {scene.state.under_way} …\n", "warn"),
        (f"  {scene.waited_s:.0f} s so far; knob keys already work, from the first round on\n", "dim"),
    ]
    return wrapped(page, width, gaps="plain")


def _failure(scene: Scene, failure: Failure, width: int, height: int) -> Rows:
    keys: list[Span] = []
    for action, effect in (("prompt(0)", "tries again   "), ("prompt(1)", "next prompt   "), ("leave", "quits")):
        keys += [(scene.keys.cap(action), "key"), (f" {effect}", "plain")]
    message, remedy = wrapped([(failure.message, "bad")], width), [(), *wrapped(keys, width, gaps="plain")]
    room = max(1, height - len(remedy))
    if len(message) > room:
        message = [*message[: room - 1], ((_CUT, "bad"),)]
    return [*message, *remedy]


def inks(heat: Heat, tokens: Sequence[Token]) -> Callable[[Token], Ink]:
    match heat:
        case "origin":
            return lambda token: _ORIGINS[token.origin]
        case "probability":
            return lambda token: (
                _ORIGINS[token.origin]
                if token.probability is None
                else HOT[-1 - bisect_right(_PROBABILITIES, token.probability)]
            )
        case "round":
            return lambda token: BANDS[token.round % 2]
        case "time":
            edges = time_edges(tokens)
            return lambda token: HOT[bisect_right(edges, 1000 * token.spent_s)]


def time_edges(tokens: Sequence[Token]) -> list[float]:
    """Limits between the inks, in ms, rounded to two digits, so that colours seldom change with the median."""
    median_ms = 1000 * statistics.median_low([token.spent_s for token in tokens] or [0.0])
    edges = [median_ms * part for part in _TIMES]
    return [float(f"{edge:.2g}") if math.isfinite(edge) else edge for edge in edges]


def legend(scene: Scene, room: int, *, beside: bool = False) -> Row:
    """Meaning of the colours, in `room` cells if possible. `beside`: whether plain decoding's text is shown too."""
    state = scene.state
    target: Span = ("target", "bonus")
    prompt: Span = ("prompt", "prompt")
    blank: Row = ((" ", "dim"),)
    match scene.heat:
        case "origin":
            by = " ─ same time each" if beside else f" by {state.watched}"
            long = _heading("", ("drafted and accepted", "accepted"), ("target's own", "bonus"), prompt, by=by)
            brief = _heading("", ("draft", "accepted"), target, prompt)
        case "probability":
            shares, lows = ("80-100%", "60-80", "40-60", "20-40", "0-20"), ("80-100%", "60", "40", "20", "0")
            long = _heading("draft gave it ", *zip(shares, HOT, strict=True), target)
            brief = _heading("", *zip(lows, HOT, strict=True), target, separator=blank)
        case "round":
            sizes = [len(event.committed) for event in state.lane.past]
            mean, highest = sum(sizes) / max(1, len(sizes)), max(sizes, default=0)
            bands: tuple[Span, ...] = (("one round", BANDS[0]), ("the next", BANDS[1]))
            long = _heading("", *bands, (f"{short(mean, 1)} tokens each, maximum {highest}", "dim"))
            brief = _heading("", *bands)
        case "time":
            edges = [f"{edge:g}" for edge in time_edges(state.lane.tokens)]
            upper = [f"to {edge}" for edge in edges]
            long = _heading("ms per token: ", *zip(upper, HOT, strict=False), ("slower", HOT[-1]))
            brief = _heading("ms ", *zip(edges, HOT, strict=False), ("more", HOT[-1]), separator=blank)
    return best_row(room, long, brief)


def _heading(start: str, *parts: Span, by: str = "", separator: Row = DOT) -> Row:
    return (("Text", "title"), (f"{by} ─ {start}", "dim"), *joined([(part,) for part in parts], separator))
