"""From prompt to prompt: a run that would be lost with its rounds is left only when the same key is pressed again."""

from dynatui.render.prompts import chosen, listed
from dynatui.screen.commands import view
from dynatui.screen.commands.time import live
from dynatui.screen.pages.input import EditScreen
from dynatui.screen.protocol import Screen


def prompt(screen: Screen, step: int) -> None:
    """Another prompt, or this one again."""
    if _agreed(screen, f"{screen.scene.keys.cap(f'prompt({step})')} again leaves this run"):
        _leave(screen, step)


def enter(screen: Screen) -> None:
    """Goes to the chosen prompt where these are listed; elsewhere the panel is shown alone, or all are again."""
    if screen.scene.panel != "prompts":
        view.maximise(screen)
        return
    screen.read_events()
    number, present = chosen(screen.scene, listed(screen.scene)), screen.viewpoint.newest.prompt
    if screen.source.controls is None and screen.source.playback is None:
        screen.show_note("another process decodes; it chooses its prompts")
    elif number is None or present is None or number == present.number:
        live(screen)
    elif _agreed(screen, f"{screen.scene.keys.cap('enter')} again goes to prompt {number}"):
        screen.change_view(chosen_prompt=None)
        _leave(screen, number - present.number)


def edit(screen: Screen) -> None:
    """Opens the prompt for changes; the page says what is lost when they are run."""
    controls = screen.source.controls
    if controls is None:
        screen.show_note("what was recorded cannot be edited")
        return

    def run(text: str | None) -> None:
        if text is not None and text != controls.prompt:
            live(screen)
            controls.edit(text)

    screen.push_screen(EditScreen(controls.prompt, losing=_would_be_lost(screen)), run)


def _leave(screen: Screen, step: int) -> None:
    """Begins the prompt so many places on; a question that was answered is not shown any more."""
    screen.change_view(note="")
    live(screen)
    screen.source.go(step)


def _agreed(screen: Screen, how: str) -> bool:
    """Whether the run may be left: nothing is lost with it, or the question is on the screen and was answered."""
    question = f"not recorded: {how}, {screen.scene.keys.cap('record')} records it"
    if not _would_be_lost(screen) or screen.scene.note == question:
        return True
    screen.show_note(question)
    return False


def _would_be_lost(screen: Screen) -> bool:
    """Whether an unfinished run has rounds that no file keeps."""
    run = screen.viewpoint.newest
    if screen.source.controls is None or screen.source.recorded or run.done or run.failure:
        return False
    return any(lane.past for lane in run.lanes.values())
