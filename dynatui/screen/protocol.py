"""What commands and clicks know of the app: what is shown and watched, and the few things that they ask it to do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from textual.screen import ModalScreen

from dynatui.render.scene import Scene
from dynatui.render.text import TextPanel
from dynatui.screen.aside import Aside
from dynatui.screen.film import Screenplay
from dynatui.screen.knob_editor import KnobEditor
from dynatui.sources.source import Source
from dynatui.state.ab_comparison import Pin
from dynatui.state.timeline import Viewpoint

T = TypeVar("T")


class Screen(Protocol):
    """The main screen."""

    source: Source
    scene: Scene
    viewpoint: Viewpoint
    knob_editor: KnobEditor | None
    """The knobs; None of a recording."""
    pins: dict[str, Pin]
    """A of each method that has one."""
    text_panel: TextPanel
    aside: Aside
    """Where work is done that takes long."""
    command_line: Callable[[], str]
    """Gives the command line of the present settings; an empty one where not all are known."""

    def change_view(self, **changes: Any) -> None:
        """Changes fields of the scene, and draws it."""

    def show_note(self, note: str) -> None:
        """Shows one line for a few seconds."""

    def read_events(self) -> None:
        """Folds the source's new records."""

    def draw(self, *, everything: bool = False) -> None:
        """Draws the panels that are due, or all of them."""

    def watch_method(self, method: str) -> None:
        """Shows another method."""

    def remember_file(self, path: Path | None) -> None:
        """Remembers a file that was written."""

    def push_screen(self, screen: ModalScreen[T], callback: Callable[[T | None], None] | None = None) -> object:
        """Opens a page over the main screen; the callback takes what it gives back."""

    def export_screenshot(self, *, title: str | None = None) -> str:
        """The picture as SVG."""

    def screenplay(self) -> Screenplay:
        """The panels as they lie there, and what they show."""

    def copy_to_clipboard(self, text: str) -> None:
        """Sends a text to the terminal's clipboard."""
