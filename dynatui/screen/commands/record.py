"""What is recorded, exported and copied: events, figures, the command line, the text."""

from dynatui.record.export import export as write_export
from dynatui.record.recording import new_recording_path
from dynatui.screen.pages.page import TextPage
from dynatui.screen.protocol import Screen


def record(screen: Screen) -> None:
    """Begins a recording, or ends it."""
    controls = screen.source.controls
    if controls is None:
        screen.show_note("this is a recording already")
        return
    before = screen.source.recorded
    path = None if before else new_recording_path()
    controls.record(path)
    screen.remember_file(path)
    screen.show_note(f"recording to {path}" if path else f"recorded in {before}")


def export(screen: Screen) -> None:
    """Writes everything about this run into a folder."""
    folder = write_export(
        None,
        events=screen.viewpoint.shown.events,
        svg=screen.export_screenshot(title="dynatui"),
        command=screen.command_line(),
    )
    screen.remember_file(folder)
    screen.show_note(f"exported to {folder}")


def command(screen: Screen) -> None:
    """Shows the command line of the present settings, and copies it."""
    line = screen.command_line()
    if not line:
        screen.show_note("a recording does not know all settings; its first line holds what it knows")
        return
    screen.copy_to_clipboard(line)
    screen.push_screen(TextPage(screen.scene.keys, "command", "The present settings as a command line (copied)", line))


def copy_text(screen: Screen) -> None:
    """Copies prompt and text as they are shown."""
    state = screen.viewpoint.state
    screen.copy_to_clipboard(state.prompt_text + "".join(token.text for token in state.lane.tokens))
    screen.show_note("the text is copied, if your terminal allows it")
