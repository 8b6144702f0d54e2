"""Writes the animated picture: the recording `first`, round by round, as an SVG that is animated without a script.

    python screenshots/animate.py

Textual draws every frame, as in the other pictures. An element that is visible in several successive frames is written
only once, in a group that the style sheet shows from the first to the last of these frames. The file contains no font:
each piece of text is stretched to the width of its cells, whichever monospaced font is used. The same trace gives the
same bytes.
"""

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape, unescape
from itertools import groupby

from dynatui.record.reader import Runs
from dynatui.screen.app import DynaApp
from dynatui.screen.scene_builder import ADVICE_S
from dynatui.sources.playback import TraceSource
from screenshots.make import FIRST, HERE, SPEED

FILE = HERE / "animated.svg"
ABOUT = "dynatui decodes the first of its prompts: text, draft tree, race, curves and knobs, round by round"
SIZE = (120, 40)
METHOD = "dynatree"
ROUNDS = 44
"""The last rounds of the run, which have small trees, are omitted."""
FRAME_S = 0.2
LAST_FRAME_COPIES = 8

WIDE, HIGH = 10, 20
"""Width and height of a character cell, in units of the SVG; with these numbers, all coordinates are integers."""
MARGIN, BAR = 8, 32
FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"
_RICH_WIDE, _RICH_HIGH = 12.2, 24.4
_RECT = re.compile(r'<rect fill="(#\w+)" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"')
_TEXT = re.compile(
    r'<text class="[\w-]+-(r\d+)" x="([\d.]+)" y="[\d.]+" textLength="([\d.]+)" '
    r'clip-path="url\(#[\w-]+-(\d+)\)">(.*?)</text>',
    re.DOTALL,
)
_STYLE = re.compile(r"-(r\d+) \{ (.*?);? \}")
_BLANK = "\xa0 \n"


@dataclass(frozen=True, order=True)
class Piece:
    row: int
    column: int
    cells: int
    style: str
    """Colour of a background, or CSS declarations of a text."""
    text: str = ""


Frame = frozenset[Piece]


@dataclass(frozen=True, order=True)
class Span:
    """From `begin` up to but not including `end`."""

    begin: int
    end: int


async def film(runs: Runs) -> list[Frame]:
    source = TraceSource(runs, speed=SPEED)
    frames = list[Frame]()
    # The what-if estimate, from which panels give advice, is made anew after some seconds.
    app = DynaApp(source, ticking=False, clock=lambda: ADVICE_S * len(frames))
    async with app.run_test(size=SIZE) as pilot:
        foresee(app)
        for rounds in range(1, ROUNDS + 1):
            source.seek_round(METHOD, rounds)
            source.play(0.0)  # turns by the history rule follow the round at once
            app.read_events()
            app.draw(everything=True)
            await pilot.pause()
            frames.append(frame(app.export_screenshot()))
    return [*frames, *(frames[-1:] * LAST_FRAME_COPIES)]


def foresee(app: DynaApp) -> None:
    """Lets the app read the whole run before the first frame. Otherwise the app would read one part of the run per
    frame, and the first frames would show only the parts read so far.
    """
    rounds = -1
    while rounds != (rounds := len(app.viewpoint.whole.lane.past)):
        app.read_events()


def frame(svg: str) -> Frame:
    styles = dict(_STYLE.findall(svg))
    backgrounds = (
        Piece(int(float(y) / _RICH_HIGH), *_columns(x, width), colour) for colour, x, y, width in _RECT.findall(svg)
    )
    texts = (
        _trimmed(Piece(int(row), *_columns(x, width), styles[name], unescape(text)))
        for name, x, width, row, text in _TEXT.findall(svg)
        if unescape(text).strip(_BLANK)
    )
    return frozenset((*backgrounds, *texts))


def spans(frames: Sequence[Frame]) -> dict[Piece, list[Span]]:
    places = defaultdict[Piece, list[int]](list)
    for place, frame_pieces in enumerate(frames):
        for piece in frame_pieces:
            places[piece].append(place)
    return {piece: list(_unbroken(frame_pieces)) for piece, frame_pieces in places.items()}


def drawing(frames: Sequence[Frame]) -> str:
    """An endless loop; without animations, the last frame."""
    ground = _ground(frames[-1])
    groups = defaultdict[Span, list[Piece]](list)
    for piece, visible in sorted(spans(frames).items()):
        if piece.text or piece.style != ground:
            for span in visible:
                groups[span].append(piece)
    ordered = sorted(groups.items())
    styles = sorted({piece.style for pieces in groups.values() for piece in pieces if piece.text})
    names = {style: f"s{number}" for number, style in enumerate(styles)}
    backgrounds = (_group(span, [_rect(p) for p in pieces if not p.text], len(frames)) for span, pieces in ordered)
    texts = (_group(span, [_words(p, names) for p in pieces if p.text], len(frames)) for span, pieces in ordered)
    sheet = _style_sheet(names, {span.end - span.begin for span in groups}, len(frames))
    return "\n".join([*_window(ground, sheet), *filter(None, backgrounds), *filter(None, texts), "</g>", "</svg>", ""])


def _columns(x: str, width: str) -> tuple[int, int]:
    """First column and number of cells of a piece, from the SVG's coordinates."""
    return round(float(x) / _RICH_WIDE), round(float(width) / _RICH_WIDE)


def _trimmed(piece: Piece) -> Piece:
    """The piece without the blanks at its ends, since blanks are invisible unless they are underlined."""
    if "underline" in piece.style:
        return piece
    after = piece.text.lstrip(_BLANK)
    lost = len(piece.text) - len(after)
    text = after.rstrip(_BLANK)
    return replace(piece, column=piece.column + lost, cells=piece.cells - len(piece.text) + len(text), text=text)


def _unbroken(places: Iterable[int]) -> Iterator[Span]:
    for _, following in groupby(enumerate(places), lambda pair: pair[1] - pair[0]):
        (_, begin), *others = following
        yield Span(begin, begin + len(others) + 1)


def _ground(frame_pieces: Frame) -> str:
    """The most frequent background colour; the empty screen is drawn in this colour."""
    cells = Counter[str]()
    for piece in frame_pieces:
        cells[piece.style] += 0 if piece.text else piece.cells
    return cells.most_common(1)[0][0]


def _window(ground: str, sheet: Iterable[str]) -> Iterator[str]:
    width, height = SIZE[0] * WIDE + 2 * MARGIN, SIZE[1] * HIGH + BAR + MARGIN
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    yield f"<title>{ABOUT}</title>"
    yield from ("<style>", *sheet, "</style>")
    yield f'<rect width="{width}" height="{height}" rx="8" fill="#292929"/>'
    for place, colour in enumerate(("#ff5f57", "#febc2e", "#28c840")):
        yield f'<circle cx="{20 + 20 * place}" cy="{BAR // 2}" r="6" fill="{colour}"/>'
    yield f'<g transform="translate({MARGIN},{BAR})">'
    yield f'<rect width="{SIZE[0] * WIDE}" height="{SIZE[1] * HIGH}" fill="{ground}"/>'


def _style_sheet(names: Mapping[str, str], lengths: Iterable[int], count: int) -> Iterator[str]:
    """A class for each text style, and an animation for each length of a span."""
    yield f"text{{font:16.6px {FONTS};white-space:pre}}"
    for style, name in names.items():
        yield f".{name}{{{style}}}"
    yield f"g[class]{{visibility:hidden;animation:{count * FRAME_S:g}s step-end infinite}}"
    yield "g.end{visibility:visible}"
    for length in sorted(set(lengths) - {count}):
        share = f"{100 * length / count:.3f}"
        yield f"g.f{length}{{animation-name:f{length}}}"
        yield f"@keyframes f{length}{{0%{{visibility:visible}}{share}%,to{{visibility:hidden}}}}"
    yield "@media (prefers-reduced-motion:reduce){g[class]{animation:none}}"


def _group(span: Span, elements: Sequence[str], count: int) -> str:
    """A delay shows the group at its first frame; it is negative, so that the animation already runs at the start."""
    inside = "".join(elements)
    if not inside:
        return ""
    if span == Span(0, count):
        return f"<g>{inside}</g>"
    length, ahead_s = span.end - span.begin, (count - span.begin) % count * FRAME_S
    name = f"f{length} end" if span.end == count else f"f{length}"
    return f'<g class="{name}" style="animation-delay:{-ahead_s:.2f}s">{inside}</g>'


def _rect(piece: Piece) -> str:
    x, y, width = piece.column * WIDE, piece.row * HIGH, piece.cells * WIDE
    return f'<rect x="{x}" y="{y}" width="{width}" height="{HIGH}" fill="{piece.style}"/>'


def _words(piece: Piece, names: Mapping[str, str]) -> str:
    x, y, width = piece.column * WIDE, piece.row * HIGH + 15, piece.cells * WIDE
    text = escape(piece.text, quote=False)
    return f'<text class="{names[piece.style]}" x="{x}" y="{y}" textLength="{width}">{text}</text>'


def main() -> None:
    FILE.write_text(drawing(asyncio.run(film(Runs(FIRST)))), encoding="utf-8")
    print(f"{FILE.relative_to(HERE.parent)}: {FILE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
