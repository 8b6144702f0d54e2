"""The text with each token's origin, wrapped as it grows.

Wrapping is incremental: only the last line is open, so a long text costs no more per token than a short one. The view
jumps by a quarter of a page when it is full, so that most frames change one row.
"""

from collections.abc import Iterable

from rich.cells import cell_len

from dynatui.render.ink import Ink, Row, Rows, frame, inside, joined
from dynatui.render.scene import Scene
from dynatui.state import Failure, Origin, RunState

_ORIGINS: dict[Origin, Ink] = {"prompt": "prompt", "accepted": "accepted", "bonus": "bonus", "plain": "plain"}
_LEGEND_WIDTH = 60


class Wrapped:
    """Rows of inked text at one width; words stay whole where they fit."""

    def __init__(self, width: int) -> None:
        self.width = max(1, width)
        self.rows: Rows = [()]
        self._cells: list[tuple[str, Ink]] = []
        """The open line, a character each, from which the last row is made anew."""
        self._used = 0

    def add(self, text: str, ink: Ink) -> None:
        """Appends text after what is there."""
        for character in text:
            if character == "\n":
                self._close(len(self._cells))
                continue
            cells = cell_len(character)
            if self._used + cells > self.width:
                if character == " ":
                    self._close(len(self._cells))
                    continue
                self._break()
            self._cells.append((character, "plain" if character == " " else ink))  # words are underlined, gaps not
            self._used += cells
        self.rows[-1] = _spans(self._cells)

    def _break(self) -> None:
        """Ends the line before its last word, or in it when the word is the line."""
        cut = next((i + 1 for i in range(len(self._cells) - 1, -1, -1) if self._cells[i][0] == " "), 0)
        self._close(cut or len(self._cells))

    def _close(self, cut: int) -> None:
        self.rows[-1] = _spans(self._cells[:cut])
        self._cells = self._cells[cut:]
        self._used = sum(cell_len(character) for character, _ in self._cells)
        self.rows.append(())


class TextPanel:
    """Draws the text panel; remembers what it has wrapped already."""

    def __init__(self) -> None:
        self._wrapped = Wrapped(1)
        self._done: tuple[tuple[str, Origin], ...] = ()
        self._top = 0

    def __call__(self, scene: Scene, width: int, height: int) -> Rows:
        """The newest text that fits, or what is loading, or what failed."""
        size = (width, height)
        inner, room = inside(size)
        state = scene.state
        if state.failure:
            body = _failure(state.failure, inner)
        elif state.run is None:
            body = _welcome(state, inner)
        else:
            body = self._page(state, inner, room)
        title = (("Error", "bad"),) if state.failure else _title(scene, inner)
        return frame(title, body, size)

    def _page(self, state: RunState, width: int, height: int) -> Rows:
        known = len(self._done)
        if width != self._wrapped.width or state.text[:known] != self._done:
            self._wrapped, self._done, self._top, known = Wrapped(width), (), 0, 0
        for text, origin in state.text[known:]:
            self._wrapped.add(text, _ORIGINS[origin])
        self._done = state.text
        rows = self._wrapped.rows
        if not self._top <= len(rows) - 1 < self._top + height:
            self._top = max(0, len(rows) - max(1, 3 * height // 4))
        if len(rows) <= height:
            self._top = 0
        page = rows[self._top : self._top + height]
        if state.watched not in state.ends and page:
            page[-1] = (*page[-1], ("▌", "dim"))
        return page


def _title(scene: Scene, width: int) -> Row:
    state = scene.state
    if state.run is None:
        return (("Text", "title"),)
    name = f" by {state.watched}" if width >= _LEGEND_WIDTH else ""
    legend: list[Row] = [
        (("drafted and accepted" if name else "draft", "accepted"),),
        (("target's own" if name else "target", "bonus"),),
        (("prompt", "prompt"),),
    ]
    return (("Text", "title"), (f"{name} ─ ", "dim"), *joined(legend, ((" · ", "dim"),)))


def _welcome(state: RunState, width: int) -> Rows:
    page = Wrapped(width)
    page.add("A small draft model guesses several tokens ahead, as a tree. A large target model checks them ", "plain")
    page.add("all at once and keeps the path that it would have written itself: the same text, sooner.\n\n", "plain")
    for message in state.loading[:-1]:
        page.add(f"  done     {message}\n", "dim")
    page.add(f"  loading  {state.loading[-1] if state.loading else 'starting'} …\n", "warn")
    return page.rows


def _failure(failure: Failure, width: int) -> Rows:
    page = Wrapped(width)
    page.add(failure.message, "bad")
    page.add("\n\nR", "key")
    page.add(" tries again   ", "plain")
    page.add("n", "key")
    page.add(" next prompt   ", "plain")
    page.add("q", "key")
    page.add(" quits", "plain")
    return page.rows


def _spans(cells: Iterable[tuple[str, Ink]]) -> Row:
    row: list[tuple[str, Ink]] = []
    for character, ink in cells:
        if row and row[-1][1] == ink:
            row[-1] = (row[-1][0] + character, ink)
        else:
            row.append((character, ink))
    return tuple(row)
