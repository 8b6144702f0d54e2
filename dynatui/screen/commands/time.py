"""Moving in time: freeze, pause, step, look back, and from prompt to prompt."""

import sys
from typing import TYPE_CHECKING

from dynatui.render import log
from dynatui.screen.screens.breaks import BreakScreen
from dynatui.screen.screens.edit import EditScreen

if TYPE_CHECKING:
    from dynatui.screen.app import DynaApp


def freeze(app: "DynaApp") -> None:
    """Holds the picture, or goes back to now; a recording plays or stands."""
    if app.source.playback:
        pause(app)
    elif app.gaze.live:
        app.gaze.hold()
    else:
        app.gaze.follow()
    app.draw(everything=True)


def pause(app: "DynaApp") -> None:
    """Holds the work, or goes on; a recording goes on from the place that is looked at."""
    playback, watched = app.source.playback, app.gaze.state.watched
    if playback and app.source.paused:
        if not app.gaze.live and app.scene.place.round < app.gaze.work.rounds(watched):
            playback.seek_round(watched, app.scene.place.round)
            app.take_in()
        app.gaze.follow()
    app.source.set_paused(paused=not app.source.paused)
    app.draw(everything=True)


def step(app: "DynaApp") -> None:
    """One stage on, or in a recording one round; the first press pauses."""
    app.gaze.follow()
    if app.source.playback:
        scrub(app, 1)
    elif app.source.controls is None:
        app.say("another process decodes; it cannot be stepped from here")
    elif app.source.paused:
        _say_whose_round(app)
        app.source.controls.step()
    else:
        app.source.set_paused(paused=True)
    app.draw(everything=True)


def _scroll_log(app: "DynaApp", below: int) -> None:
    app.look(log_end=min(max(0, below), max(0, len(log.entries(app.gaze.state)) - 1)))


def _say_whose_round(app: "DynaApp") -> None:
    """Once the watched method has ended, a step is a round of another."""
    state = app.gaze.newest
    if state.watched in state.ends:
        left = [name for name in state.lanes if name not in state.ends]
        rest = (
            f"a step is a round of {' or '.join(left)}; {app.scene.keys.cap('watch(1)')} watches it"
            if left
            else "so are all others"
        )
        app.say(f"{state.watched} has finished its text; {rest}")


def breaks(app: "DynaApp") -> None:
    """Asks when to pause."""
    if controls := app.source.controls:
        app.push_screen(BreakScreen(app.scene.keys, controls))
    else:
        app.say("only decoding can be stopped at something")


def speed(app: "DynaApp", direction: int) -> None:
    """Half or double the speed of the show."""
    app.source.set_speed(app.source.speed * 2.0**direction)
    app.draw(everything=True)


def scrub(app: "DynaApp", rounds: int) -> None:
    """Some rounds back or on."""
    scrub_to(app, app.scene.place.round + rounds)


def scrub_to(app: "DynaApp", rounds: int) -> None:
    """After so many rounds; a recording stands still there."""
    rounds, watched = max(0, rounds), app.gaze.state.watched
    if playback := app.source.playback:
        app.source.set_paused(paused=True)
        if rounds > app.gaze.work.rounds(watched) and app.gaze.shown is app.gaze.work:
            playback.seek_round(watched, min(rounds, playback.length(watched)[0]))
            app.take_in()
    app.gaze.look_at(rounds)
    app.draw(everything=True)


def scroll(app: "DynaApp", lines: int) -> None:
    """A round back or on; in the log a line."""
    if app.scene.panel == "log":
        _scroll_log(app, app.scene.log_end - lines)
    else:
        scrub(app, lines)


def first(app: "DynaApp") -> None:
    """Before the first round; in the log the first line."""
    if app.scene.panel == "log":
        _scroll_log(app, sys.maxsize)
    else:
        scrub_to(app, 0)


def last(app: "DynaApp") -> None:
    """Back to now; in the log to the newest line."""
    if app.scene.panel == "log":
        _scroll_log(app, 0)
    live(app)


def live(app: "DynaApp") -> None:
    """Back to now."""
    app.gaze.follow()
    app.look(mode="watch", cursor=None)


def prompt(app: "DynaApp", step: int) -> None:
    """Another prompt, or this one again."""
    live(app)
    app.source.go(step)


def edit(app: "DynaApp") -> None:
    """Opens the prompt for changes."""
    controls = app.source.controls
    if controls is None:
        app.say("what was recorded cannot be edited")
        return

    def run(text: str | None) -> None:
        if text is not None and text != controls.prompt:
            live(app)
            controls.edit(text)

    app.push_screen(EditScreen(controls.prompt), run)
