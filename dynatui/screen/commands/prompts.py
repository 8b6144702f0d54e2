"""Commands that change the prompt; to leave a run that is not recorded, the user must press the same key twice."""

from dynatui.render.prompts import chosen, listed
from dynatui.screen.commands import view
from dynatui.screen.commands.time import live
from dynatui.screen.pages.page import EditScreen
from dynatui.screen.protocol import Screen


def prompt(screen: Screen, step: int) -> None:
    """Begins the prompt `step` places further; 0 restarts the present prompt."""
    if _agreed(screen, f"{screen.scene.keys.cap(f'prompt({step})')} again leaves this run"):
        _leave(screen, step)


def enter(screen: Screen) -> None:
    if screen.scene.panel != "prompts":
        view.maximise(screen)
        return
    screen.read_events()
    number, present = chosen(screen.scene, listed(screen.scene)), screen.viewpoint.newest.prompt
    if screen.source.controls is None and screen.source.playback is None:
        screen.show_note("another process decodes and chooses the prompts")
    elif number is None or present is None or number == present.number:
        live(screen)
    elif _agreed(screen, f"{screen.scene.keys.cap('enter')} again goes to prompt {number}"):
        screen.change_view(chosen_prompt=None)
        _leave(screen, number - present.number)


def edit(screen: Screen) -> None:
    controls = screen.source.controls
    if controls is None:
        screen.show_note("prompts of a recording cannot be edited")
        return

    def run(text: str | None) -> None:
        if text is not None and text != controls.prompt:
            live(screen)
            controls.edit(text)

    screen.push_screen(EditScreen(controls.prompt, losing=_would_be_lost(screen)), run)


def _leave(screen: Screen, step: int) -> None:
    screen.change_view(note="")
    live(screen)
    screen.source.go(step)


def _agreed(screen: Screen, how: str) -> bool:
    """Whether the run may be left: no round would be lost, or this key press confirms it. Otherwise asks the user."""
    question = f"not recorded: {how}, {screen.scene.keys.cap('record')} records it"
    if not _would_be_lost(screen) or screen.scene.note == question:
        return True
    screen.show_note(question)
    return False


def _would_be_lost(screen: Screen) -> bool:
    """Whether an unfinished run has rounds that are not recorded."""
    run = screen.viewpoint.newest
    if screen.source.controls is None or screen.source.recorded or run.done or run.failure:
        return False
    return any(lane.past for lane in run.lanes.values())
