"""Commands that move in time and between prompts. Leaving a run that is not recorded needs a second key press."""

import sys

from decoder.methods import SIDE_A
from dynatui.keymap import CURSOR
from dynatui.knobs import rules_of
from dynatui.render import log
from dynatui.render.prompts import chosen, listed
from dynatui.screen.commands import knobs, view
from dynatui.screen.pages.page import BreakScreen, EditScreen
from dynatui.screen.protocol import Screen


def freeze(screen: Screen) -> None:
    if screen.source.playback:
        pause(screen)
    elif screen.viewpoint.live:
        screen.viewpoint.hold()
    else:
        live(screen)


def pause(screen: Screen) -> None:
    playback, watched = screen.source.playback, screen.viewpoint.state.watched
    if playback and screen.source.paused:
        if not screen.viewpoint.live and screen.scene.place.round != screen.viewpoint.work.rounds(watched):
            playback.seek_round(watched, screen.scene.place.round)
            screen.read_events()
        live(screen)
    screen.source.set_paused(paused=not screen.source.paused)


def step(screen: Screen) -> None:
    """Steps by one stage (in a recording: by one round); if live decoding is not paused, only pauses it."""
    if screen.source.playback:
        scrub(screen, 1)
        return
    live(screen)
    if screen.source.controls is None:
        screen.show_note("another process decodes and cannot be stepped from here")
    elif screen.source.paused:
        _note_whose_round(screen)
        screen.source.controls.step()
    else:
        screen.source.set_paused(paused=True)


def _note_whose_round(screen: Screen) -> None:
    state = screen.viewpoint.newest
    if state.watched in state.ends:
        left = [name for name in state.lanes if name not in state.ends]
        key = screen.scene.keys.cap("watch(1)")
        remainder = f"a step is now a round of {' or '.join(left)}; {key} watches another method"
        remainder = remainder if left else "all other methods have finished too"
        screen.show_note(f"{state.watched} has finished its text; {remainder}")


def breaks(screen: Screen) -> None:
    if controls := screen.source.controls:
        screen.push_screen(BreakScreen(screen.scene.keys, controls))
    else:
        screen.show_note("only live decoding can pause at a condition")


def speed(screen: Screen, direction: int) -> None:
    screen.source.set_speed(screen.source.speed * 2.0**direction)


def scrub(screen: Screen, rounds: int) -> None:
    scrub_to(screen, screen.scene.place.round + rounds)


def scrub_to(screen: Screen, rounds: int) -> None:
    if screen.source.playback:
        screen.source.set_paused(paused=True)
    screen.viewpoint.look_at(max(0, rounds))
    _leave_text(screen)


def scroll(screen: Screen, lines: int) -> None:
    if not _scroll_list(screen, lines):
        scrub(screen, lines)


def first(screen: Screen) -> None:
    scroll(screen, -sys.maxsize)


def last(screen: Screen) -> None:
    if _scroll_list(screen, sys.maxsize):
        return
    if playback := screen.source.playback:
        scrub_to(screen, playback.length(screen.viewpoint.state.watched)[0])
    else:
        live(screen)


def _scroll_list(screen: Screen, lines: int) -> bool:
    """Moves in the list of the chosen panel; returns False if the panel has no list."""
    match screen.scene.panel:
        case "log":
            count = len(log.entries(screen.scene.state))
            screen.change_view(log_end=min(max(0, screen.scene.log_end - lines), max(0, count - 1)))
        case "prompts":
            view.move_prompt(screen, lines)
        case "whatif":
            return knobs.choose_estimate(screen, lines)
        case _:
            return False
    return True


def live(screen: Screen) -> None:
    screen.viewpoint.follow()
    _leave_text(screen)


def _leave_text(screen: Screen) -> None:
    if screen.scene.mode in CURSOR:
        screen.change_view(mode="watch", cursor=None)


def prompt(screen: Screen, step: int) -> None:
    """Begins the prompt that is `step` after the present one; 0 restarts the present prompt."""
    if _agreed(screen, f"{screen.scene.keys.cap(f'prompt({step})')} again leaves this run"):
        _leave(screen, step)


def enter(screen: Screen) -> None:
    if screen.scene.panel == "whatif" and knobs.turn_to_estimate(screen):
        return
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


def compare(screen: Screen) -> None:
    """Begins or ends an A/B comparison of two settings of the watched method."""
    controls, key = screen.source.controls, screen.scene.keys.cap("compare")
    method = screen.viewpoint.newest.watched.removesuffix(SIDE_A)
    if controls is None:
        screen.show_note("settings can be compared only while models decode, not in a recording")
    elif not method:
        screen.show_note("settings can be compared once the models are loaded")
    elif not controls.comparing and rules_of(method) is None:
        watch = screen.scene.keys.cap("watch(1)")
        screen.show_note(f"{method} has no knobs, so there are no settings to compare; {watch} watches another method")
    elif _agreed(screen, f"{key} again leaves this run for a comparison"):
        ends = bool(controls.comparing)
        live(screen)
        controls.compare("" if ends else method)
        begun = f"A/B: A has the settings before your turns, B the present ones; turn knobs of B, {key} ends it"
        screen.show_note("the comparison is over" if ends else begun)


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
    """Whether the run may be left: no round would be lost, or the question is shown already; otherwise asks it."""
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
