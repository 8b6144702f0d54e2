"""Commands that record events, export figures and pictures, and copy the command line or the text."""

from decoder.errors import DecoderError
from dynatui.record.export import files_of, fill, new_folder
from dynatui.record.recording import new_recording_path
from dynatui.report.page import written
from dynatui.report.replay import replay_page
from dynatui.screen.film import film
from dynatui.screen.pages.page import TextPage
from dynatui.screen.protocol import Screen


def record(screen: Screen) -> None:
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
    if screen.aside.busy:
        screen.show_note("the previous export is still being written")
        return
    events, play = screen.viewpoint.shown.events, screen.screenplay()
    files = files_of(events, screen.export_screenshot(title="dynatui"), screen.command_line())
    folder = new_folder()
    files["replay.html"] = lambda: written(replay_page(folder.name, [events])).encode()
    files["screen.cast"] = lambda: b"".join(film(play, events))
    screen.show_note(f"writing {len(files)} files to {folder}")

    def write() -> None:
        fill(folder, files)
        screen.remember_file(folder)

    def tell(fault: Exception | None) -> None:
        if fault is not None and not isinstance(fault, DecoderError):
            raise fault  # the user can remedy a DecoderError; any other error is a bug
        screen.show_note(str(fault) if fault else f"exported {len(files)} files to {folder}: {', '.join(files)}")

    screen.aside.start(write, tell)


def command(screen: Screen) -> None:
    line = screen.command_line()
    if not line:
        screen.show_note("a recording does not contain all settings; its first line lists the recorded settings")
        return
    screen.copy_to_clipboard(line)
    screen.push_screen(TextPage(screen.scene.keys, "command", "The present settings as a command line (copied)", line))


def copy_text(screen: Screen) -> None:
    state = screen.viewpoint.state
    screen.copy_to_clipboard(state.prompt_text + "".join(token.text for token in state.lane.tokens))
    screen.show_note("the text is copied, if your terminal allows it")
