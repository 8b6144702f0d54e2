"""What is kept: recordings, exports, the command line; and how the screen looks."""

from typing import TYPE_CHECKING, get_args

from decoder.errors import DecoderError
from dynatui.clean import clean_line
from dynatui.keep.export import export as write_export
from dynatui.keep.recording import new_recording_path
from dynatui.screen.screens.page import TextPage
from dynatui.session import Symbols

if TYPE_CHECKING:
    from dynatui.screen.app import DynaApp

_SYMBOLS: tuple[Symbols, ...] = get_args(Symbols)


def record(app: "DynaApp") -> None:
    """Begins a recording, or ends it."""
    controls = app.source.controls
    if controls is None:
        app.say("this is a recording already")
        return
    before = app.source.recorded
    try:
        path = None if before else new_recording_path()
        controls.record(path)
    except DecoderError as error:
        app.say(str(error))
        return
    app.kept(path)
    app.say(f"recording to {path}" if path else f"recorded in {before}")


def export(app: "DynaApp") -> None:
    """Writes everything about this run into a folder."""
    try:
        folder = write_export(
            None,
            events=app.gaze.shown.events,
            svg=app.export_screenshot(title="dynatui"),
            command=app.command_line(),
        )
    except DecoderError as error:
        app.say(str(error))
        return
    app.kept(folder)
    app.say(f"exported to {folder}")


def command(app: "DynaApp") -> None:
    """Shows the command line of the present settings, and copies it."""
    line = app.command_line()
    if not line:
        app.say("a recording does not know all settings; its first line holds what it knows")
        return
    app.copy_to_clipboard(line)
    app.push_screen(TextPage(app.scene.keys, "command", "The present settings as a command line (copied)", line))


def copy_text(app: "DynaApp") -> None:
    """Copies prompt and text as they are shown."""
    state = app.gaze.state
    app.copy_to_clipboard(state.prompt_text + "".join(token.text for token in state.tokens))
    app.say("the text is copied, if your terminal allows it")


def symbols(app: "DynaApp") -> None:
    """The next set of signs."""
    name = _SYMBOLS[(_SYMBOLS.index(app.scene.symbols) + 1) % len(_SYMBOLS)]
    app.look(symbols=name)
    app.say(f"symbols: {clean_line(name)}")


def theme(app: "DynaApp") -> None:
    """The next theme."""
    app.next_theme()


def redraw(app: "DynaApp") -> None:
    """Draws every cell once more."""
    app.redraw()
