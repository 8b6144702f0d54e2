"""The keys of two recordings side by side, and the page that explains them."""

from typing import ClassVar, Literal, TypeAlias, get_args

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from dynatui.keymap import Key
from dynatui.render.status import caps

Panel: TypeAlias = Literal["text", "tree", "curves"]

PANELS: tuple[Panel, ...] = get_args(Panel)
KEYS = (
    Key(("space", "P"), ("pause", "pause"), "play", "play, pause", rank=3),
    Key(("<", ">"), ("speed(-1)", "speed(1)"), "speed", "half, double the speed of the show", rank=5),
    Key(("left", "right"), ("step(-1)", "step(1)"), "step", "to the round before, after, of either", rank=4),
    Key(("shift+left", "shift+right"), ("step(-10)", "step(10)"), "step 10", "ten rounds back, on", rank=9),
    Key(("home", "end"), ("seek(0)", "seek(1)"), "ends", "the beginning, the end of the run", rank=8),
    Key(("n", "N"), ("go(1)", "go(-1)"), "run", "the next, the previous run of both", rank=6),
    Key(("1", "2", "3"), tuple(f"panel('{name}')" for name in PANELS), "panel", "text, tree, curves", rank=7),
    Key(("v",), ("symbols",), "symbols", "braille, blocks or ASCII", rank=10),
    Key(("?",), ("help",), "help", "this page", rank=1),
    Key(("q", "ctrl+c"), ("leave", "leave"), "quit", "quit", rank=2),
)
ABOUT = (
    "Both are shown after the same decode time of their watched method, the first of the run: neither pauses, nor the "
    "speed of the show, nor other methods of the race count. So the one with more text is the faster one. Runs are "
    "paired in the order of the files: first with first, second with second."
)


class KeysScreen(ModalScreen[None]):
    """The keys and what is compared; closed by any of the keys that people try."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,escape,enter,space", "dismiss", "close", show=False),
        Binding("q,ctrl+c", "app.leave", "quit", show=False, priority=True),
    ]

    def compose(self) -> ComposeResult:
        """One page of text."""
        page = Text()
        for key in KEYS:
            page.append(f"{caps(key):>15}  ", Style(bold=True))
            page.append(f"{key.help}\n")
        page.append(f"\n{ABOUT}")
        with VerticalScroll(id="page"):
            yield Static(page, markup=False)
