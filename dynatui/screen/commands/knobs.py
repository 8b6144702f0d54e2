"""Turning knobs: by step, by slider, by a typed value, and back."""

from contextlib import suppress
from typing import TYPE_CHECKING

from decoder.methods import METHODS
from decoder.methods.adaptive import AdaptiveTree
from dynatui.fold.pin import Pin
from dynatui.knobs import info, sliders_of, turns
from dynatui.render.drawer import shown
from dynatui.render.words import moved_back
from dynatui.screen.desk import Desk

if TYPE_CHECKING:
    from dynatui.screen.app import DynaApp

_LONGEST_VALUE = 7
_FEW = 4


def turn(app: "DynaApp", cap: str) -> None:
    """Turns the knob that a key stands for, where the watched method has one."""
    if not (desk := _desk(app)):
        return
    method = desk.watched(app.gaze.newest)
    knob = next((each for each in sliders_of(method) if cap in each.keys), None)
    if knob is None:
        keys = {each.symbol: " ".join(map(app.scene.keys.cap, turns(each))) for each in sliders_of(method)}
        others = ", ".join(f"{caps} {symbol}" for symbol, caps in keys.items())
        none = f"{method} has no knobs; {_key(app, 'watch(1)')} watches another method"
        app.say(f"{method} has no such knob; its own: {others}" if others else none)
        return
    desk.move(knob.name, -knob.step if cap == knob.keys[0] else knob.step, app.gaze.newest)
    app.draw(everything=True)


def history(app: "DynaApp") -> None:
    """History on or off."""
    if desk := _desk(app):
        if isinstance(desk.rules(app.gaze.newest), AdaptiveTree):
            desk.history(app.gaze.newest)
            app.draw(everything=True)
        else:
            app.say(f"{desk.watched(app.gaze.newest)} has no history; {_key(app, 'watch(1)')} watches another method")


def hold(app: "DynaApp") -> None:
    """Holds the knob that history has moved back."""
    if desk := _desk(app):
        moved = moved_back(app.gaze.newest.lane)
        if moved is None:
            app.say("history has moved back nothing that you set")
            return
        name, value = moved.mark.name, moved.mark.old
        desk.hold(name, value, app.gaze.newest)
        app.say(f"history is off; {info(name).symbol} stays at {info(name).written(value)}")


def watch(app: "DynaApp", step: int) -> None:
    """The next method, or the one before: its text, tree and curves; knob keys act on it."""
    names = list(app.gaze.state.lanes)
    if not names:
        app.say("methods can be watched once the models are loaded")
        return
    name = names[(names.index(app.gaze.state.watched) + step) % len(names)]
    app.watch_method(name)
    app.say(f"watching {name}: {METHODS[name].title}" if name in METHODS else f"watching {name}")


def drawer(app: "DynaApp") -> None:
    """Every knob as a slider, or the panels again; of a recording they can only be read."""
    app.look(mode="watch" if app.scene.mode == "knobs" else "knobs", typed="")


def slider(app: "DynaApp", step: int) -> None:
    """The next slider, or the one before."""
    names = shown(app.gaze.state)
    if names:
        place = names.index(app.scene.slider) if app.scene.slider in names else 0
        app.look(slider=names[(place + step) % len(names)], typed="")


def slider_to(app: "DynaApp", place: int) -> None:
    """The first slider, or the last."""
    names = shown(app.gaze.state)
    if names:
        app.look(slider=names[place], typed="")


def nudge(app: "DynaApp", steps: int) -> None:
    """Turns the chosen slider."""
    _nudge(app, steps * info(app.scene.slider).step)


def nudge_far(app: "DynaApp", steps: int) -> None:
    """Turns the chosen slider in large steps."""
    _nudge(app, steps * info(app.scene.slider).coarse)


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
            desk.set({app.scene.slider: float(app.scene.typed)}, app.gaze.newest)
        app.look(typed="")


def undo(app: "DynaApp") -> None:
    """What the last key turned, back."""
    if desk := _desk(app):
        step = desk.undo(app.gaze.newest)
        if step is None:
            app.say("nothing was turned yet")
            return
        names = ", ".join(dict.fromkeys(info(name).symbol for name, _ in step.before))
        app.say(f"{names} of {step.of} as before" if len(step.before) < _FEW else f"all knobs of {step.of} as before")


def defaults(app: "DynaApp") -> None:
    """All knobs of the watched method as at the start."""
    if desk := _desk(app):
        method = desk.watched(app.gaze.newest)
        turned = desk.defaults(app.gaze.newest)
        app.say(f"all knobs of {method} {'' if turned else 'already '}are as the program was started")


def preset(app: "DynaApp") -> None:
    """All knobs as in the next preset."""
    if desk := _desk(app):
        name = desk.next_preset(app.gaze.newest)
        method = desk.watched(app.gaze.newest)
        whose = " and ".join(name for name, each in METHODS.items() if each.presets)
        others = f"presets are values of {whose}'s knobs, and {method} is watched"
        app.say(f"knobs of the preset {name}; {_key(app, 'undo')} undoes" if name else others)


def pin(app: "DynaApp") -> None:
    """What was measured so far becomes A, or A is given up."""
    state = app.gaze.newest
    before = app.intake.pins.get(state.watched)
    if before is not None and before.by_hand:
        del app.intake.pins[state.watched]
        app.say(f"A is given up; {_key(app, 'pin')} pins a new one, and so does the next turn of a knob")
    elif state.rounds:
        app.intake.pins[state.watched] = Pin.of(state, state.watched, by_hand=True)
        app.say("A is pinned; what follows is B")
    else:
        app.say("there is no round to pin yet")


def _key(app: "DynaApp", action: str) -> str:
    return app.scene.keys.cap(action)


def _nudge(app: "DynaApp", distance: float) -> None:
    if desk := _desk(app):
        desk.move(app.scene.slider, distance, app.gaze.newest)
        app.draw(everything=True)


def _desk(app: "DynaApp") -> Desk | None:
    """The desk, or the reason why there is none."""
    if app.desk is None:
        app.say("what was recorded cannot be turned")
    return app.desk
