"""Commands that change knobs: by a step, with a slider, to a typed value, to a preset, or back to earlier values."""

from collections.abc import Callable
from contextlib import suppress

from decoder.knobs import KnobName, bounds
from decoder.methods import METHODS
from decoder.methods.adaptive import AdaptiveTree
from decoder.sampling.settings import SAMPLING, Sampling
from dynatui.knobs import choices, having, info, sliders_of, turns
from dynatui.render.drawer import listed_knobs
from dynatui.render.what_if import chosen
from dynatui.render.words import moved_back, values_of
from dynatui.screen.knob_editor import KnobEditor
from dynatui.screen.pages.page import TextPage
from dynatui.screen.protocol import Screen
from dynatui.screen.settings_tried import table
from dynatui.state.run_state import RunState

_LONGEST_VALUE = 7
_FEW = 4
_TABLE, _AROUND = 76, 8
"""Largest width of the table of settings, and total width of the page around it, in cells."""


def turn(screen: Screen, cap: str) -> None:
    if not (editor := _editor(screen)):
        return
    method = editor.watched(screen.viewpoint.newest)
    knob = next((candidate for candidate in (*sliders_of(method), *Sampling.knobs) if cap in candidate.keys), None)
    if knob is None:
        keys = [f"{' '.join(map(screen.scene.keys.cap, turns(own)))} {own.symbol}" for own in sliders_of(method)]
        refusal = f"{method} has no knobs; {_key(screen, 'watch(1)')} watches another method"
        screen.show_note(f"{method} has no knob with this key; its knobs are: {', '.join(keys)}" if keys else refusal)
        return
    _move(screen, knob.name, -knob.step if cap == knob.keys[0] else knob.step)


def cycle(screen: Screen, name: KnobName) -> None:
    """Sets a knob to its next named value that is valid for the present trees; after the last value, to the first."""
    if not (editor := _editor(screen)):
        return
    state = screen.viewpoint.newest
    rules = editor.rules(state)
    if rules is None or not rules.has(name):
        screen.show_note(_owners(screen, name, editor.watched(state)))
        return
    knob, ends, value = info(name), bounds(rules, name), rules.knob(name)
    fitting = choices(knob, ends)
    following = next((place for place in fitting if place > value), min(fitting))
    unfitting = ", ".join(name_of_value for place, name_of_value in enumerate(knob.values) if place not in fitting)
    turned = editor.set({name: float(following)}, state)
    now = f"{knob.symbol} {knob.written(following)}"
    if not turned:
        screen.show_note(f"{now} is unchanged: {unfitting} do not fit these trees")
    elif editor.sampling.greedy:
        warmer = _key(screen, turns(info("temperature"))[1])
        screen.show_note(f"{now}, which has no effect at T 0, where decoding is greedy; {warmer} raises T")
    else:
        left_out = f"; {unfitting} do not fit these trees" if following < value and unfitting else ""
        screen.show_note(f"{now}, from the {'next' if state.run else 'first'} round on{left_out}")


def _owners(screen: Screen, name: KnobName, method: str) -> str:
    owners, racing = having(name), screen.viewpoint.newest.lanes
    racing_owners = [owner for owner in owners if owner in racing]
    has = f"{method} has no {info(name).symbol}, which is a knob of {', '.join(owners)}"
    if racing_owners:
        return f"{has}; {_key(screen, 'watch(1)')} watches another method"
    return f"{has}; to race with it, start with --methods {owners[0]},ar"


def history(screen: Screen) -> None:
    if editor := _editor(screen):
        if isinstance(editor.rules(screen.viewpoint.newest), AdaptiveTree):
            editor.history(screen.viewpoint.newest)
        else:
            method = editor.watched(screen.viewpoint.newest)
            screen.show_note(f"{method} has no history rule; {_key(screen, 'watch(1)')} watches another method")


def hold(screen: Screen) -> None:
    if editor := _editor(screen):
        moved = moved_back(screen.viewpoint.newest.lane)
        if moved is None:
            screen.show_note("the history rule has not moved back any value that you set")
            return
        name, value = moved.name, moved.old
        editor.hold({name: value}, screen.viewpoint.newest)
        screen.show_note(f"the history rule is off; {info(name).symbol} stays at {info(name).written(value)}")


def watch(screen: Screen, step: int) -> None:
    names = list(screen.viewpoint.state.lanes)
    if not names:
        screen.show_note("methods can be watched once the models are loaded")
        return
    name = names[(names.index(screen.viewpoint.state.watched) + step) % len(names)]
    screen.watch_method(name)
    screen.show_note(f"watching {name}: {METHODS[name].title}" if name in METHODS else f"watching {name}")


def drawer(screen: Screen) -> None:
    screen.change_view(mode="watch" if screen.scene.mode == "knobs" else "knobs", typed="")


def slider(screen: Screen, step: int) -> None:
    names = listed_knobs(screen.viewpoint.state)
    if names:
        place = names.index(screen.scene.slider) if screen.scene.slider in names else 0
        screen.change_view(slider=names[(place + step) % len(names)], typed="")


def slider_to(screen: Screen, place: int) -> None:
    """Chooses a slider by its index; -1 is the last slider."""
    names = listed_knobs(screen.viewpoint.state)
    if names:
        screen.change_view(slider=names[place], typed="")


def nudge(screen: Screen, steps: int) -> None:
    _move(screen, screen.scene.slider, steps * info(screen.scene.slider).step)


def nudge_far(screen: Screen, steps: int) -> None:
    _move(screen, screen.scene.slider, steps * info(screen.scene.slider).coarse)


def type_digit(screen: Screen, digit: str) -> None:
    typed = screen.scene.typed + digit
    if len(typed) <= _LONGEST_VALUE and typed.count(".") <= 1:
        screen.change_view(typed=typed)


def rub_out(screen: Screen) -> None:
    screen.change_view(typed=screen.scene.typed[:-1])


def set_typed(screen: Screen) -> None:
    with suppress(ValueError):  # the typed value is empty or a lone decimal point
        turn_to(screen, screen.scene.slider, float(screen.scene.typed))
    screen.change_view(typed="")


def turn_to(screen: Screen, name: KnobName, value: float) -> None:
    screen.change_view(slider=name)
    _turn(screen, name, lambda editor, state: editor.set({name: value}, state))


def _move(screen: Screen, name: KnobName, distance: float) -> None:
    _turn(screen, name, lambda editor, state: editor.move(name, distance, state))


def _turn(screen: Screen, name: KnobName, act: Callable[[KnobEditor, RunState], bool]) -> None:
    if not (editor := _editor(screen)):
        return
    state = screen.viewpoint.newest
    if not Sampling().has(name):
        act(editor, state)
    elif name != "temperature" and editor.sampling.greedy:
        warmer = screen.scene.keys.cap(turns(info("temperature"))[1])
        screen.show_note(f"{info(name).symbol} has no effect at T 0, where decoding is greedy; {warmer} raises T")
    else:
        turned = act(editor, state)
        now = f"{info(name).symbol} {info(name).written(editor.sampling.knob(name))}"
        greedy = ", greedy," if editor.sampling.greedy else ""
        effect = f"{greedy} for all methods, from the first undecoded token on" if turned else " as before"
        screen.show_note(f"{now}{effect}")


def choose_estimate(screen: Screen, step: int) -> bool:
    """Chooses another what-if cell, `step` further in order of speed; returns False if there are no speed estimates."""
    places, now = screen.scene.whatif.by_rate() if screen.scene.whatif else [], chosen(screen.scene)
    if now is None:
        return False
    place = places[min(max(0, places.index(now) + step), len(places) - 1)]
    screen.change_view(whatif_choice=place.knobs)
    return True


def turn_to_estimate(screen: Screen) -> bool:
    """Sets the knobs to the values of the chosen what-if cell; returns False if there are no speed estimates."""
    place = chosen(screen.scene)
    if place is None:
        return False
    if editor := _editor(screen):
        state = screen.viewpoint.newest
        rules = editor.rules(state)
        if isinstance(rules, AdaptiveTree) and rules.history:
            editor.hold(place.knobs, state)
        else:
            editor.set(place.knobs, state)
        held = "; the history rule is off" if isinstance(rules, AdaptiveTree) and rules.history else ""
        screen.show_note(f"{values_of(place)} from the next round on{held}; {_key(screen, 'undo')} undoes this")
    return True


def undo(screen: Screen) -> None:
    if editor := _editor(screen):
        turns = editor.undo(screen.viewpoint.newest)
        if not turns:
            screen.show_note("no knob has been changed yet")
            return
        names = ", ".join(dict.fromkeys(info(turn.name).symbol for turn in turns))
        owner_name = next((turn.rules_name for turn in turns if turn.rules_name != SAMPLING), "all methods")
        screen.show_note(f"undone: {names if len(turns) < _FEW else 'all knobs'} of {owner_name}")


def defaults(screen: Screen) -> None:
    if editor := _editor(screen):
        method = editor.watched(screen.viewpoint.newest)
        turned = editor.defaults(screen.viewpoint.newest)
        screen.show_note(f"all knobs of {method} {'' if turned else 'already '}have their start values")


def preset(screen: Screen) -> None:
    if editor := _editor(screen):
        name = editor.next_preset(screen.viewpoint.newest)
        method = editor.watched(screen.viewpoint.newest)
        owners = " and ".join(name for name, spec in METHODS.items() if spec.presets)
        refusal = f"presets are for the knobs of {owners}, but {method} is watched"
        done = f"the knobs are set to the preset {name}; {_key(screen, 'undo')} undoes this"
        screen.show_note(done if name else refusal)


def settings(screen: Screen) -> None:
    tried = screen.session_log.settings_tried()
    text = "\n".join(table(tried, min(_TABLE, screen.size.width - _AROUND))) if tried else "no setting was tried yet"
    how = f"{_key(screen, 'compare')} compares the present settings with those before your turns, over the same tokens"
    screen.push_screen(TextPage(screen.scene.keys, "settings", "Settings tried", f"{text}\n\n{how}"))


def _key(screen: Screen, action: str) -> str:
    return screen.scene.keys.cap(action)


def _editor(screen: Screen) -> KnobEditor | None:
    """The knob editor; for a recording, shows a note and returns None."""
    if screen.knob_editor is None:
        screen.show_note("knobs of a recording cannot be turned")
    return screen.knob_editor
