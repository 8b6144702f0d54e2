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
    source: Source
    scene: Scene
    viewpoint: Viewpoint
    knob_editor: KnobEditor | None
    pins: dict[str, Pin]
    text_panel: TextPanel
    aside: Aside
    command_line: Callable[[], str]

    def change_view(self, **changes: Any) -> None: ...
    def show_note(self, note: str) -> None: ...
    def read_events(self) -> None: ...
    def draw(self, *, everything: bool = False) -> None: ...
    def watch_method(self, method: str) -> None: ...
    def remember_file(self, path: Path | None) -> None: ...
    def push_screen(self, screen: ModalScreen[T], callback: Callable[[T | None], None] | None = None) -> object: ...
    def export_screenshot(self, *, title: str | None = None) -> str: ...
    def screenplay(self) -> Screenplay: ...
    def copy_to_clipboard(self, text: str) -> None: ...
