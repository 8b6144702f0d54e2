"""Turning knobs: by step, by slider, by a typed value, and back."""

from contextlib import suppress
from typing import TYPE_CHECKING

from decoder.knobs import KnobName
from dynatui.fold.pin import Pin
from dynatui.knobs import info
from dynatui.render.drawer import shown
from dynatui.screen.desk import Desk

if TYPE_CHECKING:
    from dynatui.screen.app import DynaApp

_LONGEST_VALUE = 7


def turn(app: "DynaApp", name: KnobName, steps: int) -> None:
    """By steps from where it is."""
    if desk := _desk(app):
        desk.move(name, steps * info(name).step, app.gaze.work.state)
        app.draw(everything=True)


def history(app: "DynaApp") -> None:
    """History on or off."""
    if desk := _desk(app):
        state = app.gaze.work.state
        desk.set("history", float(not desk.config(state).knob("history")), state)
        app.draw(everything=True)


def drawer(app: "DynaApp") -> None:
    """Every knob as a slider, or the panels again; of a recording they can only be read."""
    app.look(mode="watch" if app.scene.mode == "knobs" else "knobs", typed="")


def slider(app: "DynaApp", step: int) -> None:
    """The next slider, or the one before."""
    names = shown(app.scene.state)
    if names:
        place = names.index(app.scene.slider) if app.scene.slider in names else 0
        app.look(slider=names[(place + step) % len(names)], typed="")


def nudge(app: "DynaApp", steps: int) -> None:
    """Turns the chosen slider."""
    turn(app, app.scene.slider, steps)


def nudge_far(app: "DynaApp", steps: int) -> None:
    """Turns the chosen slider in large steps."""
    if desk := _desk(app):
        knob = info(app.scene.slider)
        desk.move(knob.name, steps * knob.coarse, app.gaze.work.state)
        app.draw(everything=True)


def type_digit(app: "DynaApp", digit: str) -> None:
    """One more character of a value."""
    typed = app.scene.typed + digit
    if len(typed) <= _LONGEST_VALUE and typed.count(".") <= 1:
        app.look(typed=typed)


def rub_out(app: "DynaApp") -> None:
    """One character less."""
    app.look(typed=app.scene.typed[:-1])


def set_typed(app: "DynaApp") -> None:
    """Turns the chosen slider to the typed value."""
    if desk := _desk(app):
        with suppress(ValueError):  # nothing was typed, or only a point
            desk.set(app.scene.slider, float(app.scene.typed), app.gaze.work.state)
        app.look(typed="")


def undo(app: "DynaApp") -> None:
    """The last turn back."""
    if desk := _desk(app):
        name = desk.undo(app.gaze.work.state)
        app.say(f"{info(name).symbol} is as before" if name else "nothing was turned yet")


def defaults(app: "DynaApp") -> None:
    """All knobs as at the start."""
    if desk := _desk(app):
        desk.defaults(app.gaze.work.state)
        app.say("all knobs are as the program was started")


def preset(app: "DynaApp") -> None:
    """All knobs as in the next preset."""
    if desk := _desk(app):
        app.say(f"knobs of the preset {desk.next_preset(app.gaze.work.state)}")


def pin(app: "DynaApp") -> None:
    """What was measured so far becomes A, or A is given up."""
    if app.pin is not None:
        app.pin = None
        app.say("A is given up; b pins a new one")
    elif app.gaze.work.rounds:
        app.pin = Pin.of(app.gaze.work.state)
        app.say("A is pinned; what follows is B")
    else:
        app.say("there is no round to pin yet")


def _desk(app: "DynaApp") -> Desk | None:
    """The desk, or the reason why there is none."""
    if app.desk is None:
        app.say("what was recorded cannot be turned")
    elif app.gaze.work.state.run is None:
        app.say("knobs can be turned once the models are loaded")
    else:
        return app.desk
    return None
