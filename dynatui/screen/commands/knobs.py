"""Turning knobs: by step, by slider, by a typed value, and back."""

from contextlib import suppress

from decoder.config import AdaptiveTree
from decoder.methods import METHODS
from dynatui.knobs import info, sliders_of
from dynatui.render.drawer import shown
from dynatui.render.words import moved_back
from dynatui.screen.knob_editor import Desk
from dynatui.screen.protocol import Screen
from dynatui.state.ab_comparison import Pin

_LONGEST_VALUE = 7
_FEW = 4


def turn(screen: Screen, cap: str) -> None:
    """Turns the knob that a key stands for, where the watched method has one."""
    if not (desk := _desk(screen)):
        return
    method = desk.watched(screen.gaze.newest)
    slider = next((each for each in sliders_of(method) if cap in each.caps), None)
    if slider is None:
        keys = {each.knob: " ".join(map(screen.scene.keys.cap, each.actions)) for each in sliders_of(method)}
        others = ", ".join(f"{caps} {info(knob).symbol}" for knob, caps in keys.items())
        none = f"{method} has no knobs; {_key(screen, 'watch(1)')} watches another method"
        screen.say(f"{method} has no such knob; its own: {others}" if others else none)
        return
    step = info(slider.knob).step
    desk.move(slider.knob, -step if cap == slider.caps[0] else step, screen.gaze.newest)
    screen.draw(everything=True)


def history(screen: Screen) -> None:
    """History on or off."""
    if desk := _desk(screen):
        if isinstance(desk.rules(screen.gaze.newest), AdaptiveTree):
            desk.history(screen.gaze.newest)
            screen.draw(everything=True)
        else:
            screen.say(
                f"{desk.watched(screen.gaze.newest)} has no history; {_key(screen, 'watch(1)')} watches another method"
            )


def hold(screen: Screen) -> None:
    """Holds the knob that history has moved back."""
    if desk := _desk(screen):
        moved = moved_back(screen.gaze.newest.lane)
        if moved is None:
            screen.say("history has moved back nothing that you set")
            return
        name, value = moved.mark.name, moved.mark.old
        desk.hold(name, value, screen.gaze.newest)
        screen.say(f"history is off; {info(name).symbol} stays at {info(name).written(value)}")


def watch(screen: Screen, step: int) -> None:
    """The next method, or the one before: its text, tree and curves; knob keys act on it."""
    names = list(screen.gaze.state.lanes)
    if not names:
        screen.say("methods can be watched once the models are loaded")
        return
    name = names[(names.index(screen.gaze.state.watched) + step) % len(names)]
    screen.watch_method(name)
    screen.say(f"watching {name}: {METHODS[name].title}" if name in METHODS else f"watching {name}")


def drawer(screen: Screen) -> None:
    """Every knob as a slider, or the panels again; of a recording they can only be read."""
    screen.look(mode="watch" if screen.scene.mode == "knobs" else "knobs", typed="")


def slider(screen: Screen, step: int) -> None:
    """The next slider, or the one before."""
    names = shown(screen.gaze.state)
    if names:
        place = names.index(screen.scene.slider) if screen.scene.slider in names else 0
        screen.look(slider=names[(place + step) % len(names)], typed="")


def slider_to(screen: Screen, place: int) -> None:
    """The first slider, or the last."""
    names = shown(screen.gaze.state)
    if names:
        screen.look(slider=names[place], typed="")


def nudge(screen: Screen, steps: int) -> None:
    """Turns the chosen slider."""
    _nudge(screen, steps * info(screen.scene.slider).step)


def nudge_far(screen: Screen, steps: int) -> None:
    """Turns the chosen slider in large steps."""
    _nudge(screen, steps * info(screen.scene.slider).coarse)


def type_digit(screen: Screen, digit: str) -> None:
    """One more character of a value."""
    typed = screen.scene.typed + digit
    if len(typed) <= _LONGEST_VALUE and typed.count(".") <= 1:
        screen.look(typed=typed)


def rub_out(screen: Screen) -> None:
    """One character less."""
    screen.look(typed=screen.scene.typed[:-1])


def set_typed(screen: Screen) -> None:
    """Turns the chosen slider to the typed value."""
    if desk := _desk(screen):
        with suppress(ValueError):  # nothing was typed, or only a point
            desk.set({screen.scene.slider: float(screen.scene.typed)}, screen.gaze.newest)
        screen.look(typed="")


def undo(screen: Screen) -> None:
    """What the last key turned, back."""
    if desk := _desk(screen):
        step = desk.undo(screen.gaze.newest)
        if step is None:
            screen.say("nothing was turned yet")
            return
        names = ", ".join(dict.fromkeys(info(name).symbol for name, _ in step.before))
        screen.say(
            f"{names} of {step.of} as before" if len(step.before) < _FEW else f"all knobs of {step.of} as before"
        )


def defaults(screen: Screen) -> None:
    """All knobs of the watched method as at the start."""
    if desk := _desk(screen):
        method = desk.watched(screen.gaze.newest)
        turned = desk.defaults(screen.gaze.newest)
        screen.say(f"all knobs of {method} {'' if turned else 'already '}are as the program was started")


def preset(screen: Screen) -> None:
    """All knobs as in the next preset."""
    if desk := _desk(screen):
        name = desk.next_preset(screen.gaze.newest)
        method = desk.watched(screen.gaze.newest)
        others = f"presets are values of dynatree's knobs, and {method} is watched"
        screen.say(f"knobs of the preset {name}; {_key(screen, 'undo')} undoes" if name else others)


def pin(screen: Screen) -> None:
    """What was measured so far becomes A, or A is given up."""
    state = screen.gaze.newest
    before = screen.pins.get(state.watched)
    if before is not None and before.by_hand:
        del screen.pins[state.watched]
        screen.say(f"A is given up; {_key(screen, 'pin')} pins a new one, and so does the next turn of a knob")
    elif state.rounds:
        screen.pins[state.watched] = Pin.of(state, state.watched, by_hand=True)
        screen.say("A is pinned; what follows is B")
    else:
        screen.say("there is no round to pin yet")


def _key(screen: Screen, action: str) -> str:
    return screen.scene.keys.cap(action)


def _nudge(screen: Screen, distance: float) -> None:
    if desk := _desk(screen):
        desk.move(screen.scene.slider, distance, screen.gaze.newest)
        screen.draw(everything=True)


def _desk(screen: Screen) -> Desk | None:
    """The desk, or the reason why there is none."""
    if screen.desk is None:
        screen.say("what was recorded cannot be turned")
    return screen.desk
