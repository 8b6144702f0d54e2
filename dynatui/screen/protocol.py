"""The part of the monitor's app that commands and clicks use."""

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
    """The editor of knobs; None for a recording."""
    pins: dict[str, Pin]
    """Side A of the A/B comparison, by method."""
    text_panel: TextPanel
    aside: Aside
    """Background work."""
    command_line: Callable[[], str]
    """Command line of the present settings; empty if some settings are unknown."""

    def change_view(self, **changes: Any) -> None:
        """Changes fields of the scene, and draws it."""

    def show_note(self, note: str) -> None:
        """Shows a note of one line for a few seconds."""

    def read_events(self) -> None:
        """Folds the source's new records."""

    def draw(self, *, everything: bool = False) -> None:
        """Draws the panels that are due, or all of them."""

    def watch_method(self, method: str) -> None:
        """Watches another method."""

    def remember_file(self, path: Path | None) -> None:
        """Remembers a written file for the summary at the end."""

    def push_screen(self, screen: ModalScreen[T], callback: Callable[[T | None], None] | None = None) -> object:
        """Opens a page over the main screen; the callback receives the page's result."""

    def export_screenshot(self, *, title: str | None = None) -> str:
        """The screen as SVG."""

    def screenplay(self) -> Screenplay:
        """The panels with their places, and the scene."""

    def copy_to_clipboard(self, text: str) -> None:
        """Copies a text to the clipboard through the terminal."""
