"""The part of the monitor's app that commands and clicks use, and its background jobs."""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from textual.geometry import Size
from textual.screen import ModalScreen

from dynatui.render.scene import Scene
from dynatui.render.text import TextPanel
from dynatui.screen.film import Screenplay
from dynatui.screen.knob_editor import KnobEditor
from dynatui.screen.scene_builder import Source
from dynatui.state.session_log import SessionLog
from dynatui.state.timeline import Viewpoint


class Aside:
    """Runs a job in a background thread. `call_later` schedules a call in the app's thread and is thread-safe."""

    def __init__(self, call_later: Callable[..., Any]) -> None:
        self._call_later = call_later
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], None], on_end: Callable[[Exception | None], None]) -> None:
        """Starts the job `work`; at its end, `on_end` is called in the app's thread with the job's error, else None."""
        self._thread = threading.Thread(target=self._do, args=(work, on_end), daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _do(self, work: Callable[[], None], on_end: Callable[[Exception | None], None]) -> None:
        fault: Exception | None = None
        try:
            work()
        except Exception as error:  # noqa: BLE001 - `on_end` raises the error in the app, unless the user can remedy it
            fault = error
        with suppress(RuntimeError):  # the app has ended
            self._call_later(on_end, fault)


T = TypeVar("T")


class Screen(Protocol):
    source: Source
    scene: Scene
    viewpoint: Viewpoint
    knob_editor: KnobEditor | None
    text_panel: TextPanel
    aside: Aside
    command_line: Callable[[], str]

    @property
    def session_log(self) -> SessionLog: ...

    @property
    def size(self) -> Size: ...

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
