"""The knobs that methods declare, as the screen shows them, and the present values of knobs in a run."""

from dataclasses import asdict
from typing import TypeVar

from decoder.errors import ConfigError
from decoder.events import OTHER_LIMITS, Limit
from decoder.knobs import KnobInfo, KnobName, RulesName, TunableParameters
from decoder.methods import METHODS, all_knobs, method_of
from decoder.sampling.settings import SAMPLING, Sampling
from dynatui.clean import clean_line
from dynatui.session import DEMO
from dynatui.state.lane import LaneState
from dynatui.state.run_state import RunState

_KEYS = ("[]", "{}", "-=")
"""Pairs of keys that turn the sliders, in the order of the sliders from the left."""
_LONGEST_NAME = 24

R = TypeVar("R", RulesName, RulesName | None)


def info(name: KnobName) -> KnobInfo:
    """Description of a knob; for a knob of a recording that no method declares, only its name is known."""
    known = all_knobs().get(name)
    return known or KnobInfo(name, clean_line(name)[:_LONGEST_NAME], "", "real", lambda _: (0.0, 1.0))


def turns(knob: KnobInfo) -> tuple[str, str]:
    return f"turn({knob.keys[0]!r})", f"turn({knob.keys[1]!r})"


def rules_of(method: str) -> RulesName | None:
    """Name of the parameter set that a method uses; None for a method without knobs and for side A of a comparison."""
    return METHODS[method].rules if method in METHODS else None


def owner(name: KnobName, rules: R) -> RulesName | R:
    return SAMPLING if Sampling().has(name) else rules


def having(name: KnobName) -> tuple[str, ...]:
    return tuple(
        method
        for method in METHODS
        if (of := rules_of(method)) and any(knob.name == name for knob in METHODS[of].knobs)
    )


def choices(knob: KnobInfo, ends: tuple[float, float]) -> dict[int, str]:
    """The named values of a knob within its bounds: the number that the user types -> name of the value."""
    return {place: name for place, name in enumerate(knob.values) if ends[0] <= place <= ends[1]}


def sliders_of(method: str) -> tuple[KnobInfo, ...]:
    rules = rules_of(method)
    own = [knob for knob in METHODS[rules].knobs if knob.keys] if rules else []
    return tuple(sorted(own, key=lambda knob: _KEYS.index(knob.keys)))


def limit_name(limit: Limit) -> str:
    return limit if limit in OTHER_LIMITS else info(limit).symbol


def sampling_in_force(state: RunState) -> Sampling | None:
    """The present sampling settings; None before the first run, and if a recording has invalid values."""
    if state.run is None:
        return None
    try:
        return Sampling(top_k=state.run.top_k).with_knobs(state.lane.settings)
    except ConfigError:
        return None


def preset_of(method: str, lane: LaneState) -> str:
    """Name of the preset that equals all present parameters; empty if there is none.

    For a knob that the history rule has changed, the user's value is compared, since the rule is part of a preset.
    """
    known = method_of(method)
    presets = METHODS[known.rules].presets if known and known.rules else {}
    return next((preset for preset, rules in presets.items() if _has_values(lane, rules)), "")


def is_demo(method: str, lane: LaneState) -> bool:
    return rules_of(method) == "dynatree" and _has_values(lane, DEMO)


def _has_values(lane: LaneState, rules: TunableParameters) -> bool:
    of_knobs = {knob.parameter for knob in rules.knobs}
    constants = {name: value for name, value in asdict(rules).items() if name not in of_knobs}
    return all(lane.user_settings.get(knob.name) == rules.knob(knob.name) for knob in rules.knobs) and all(
        lane.parameters.get(name) == value for name, value in constants.items()
    )


def rules_in_force(state: RunState) -> TunableParameters | None:
    """Present parameters of the watched method (defaults if missing); None without knobs, or with invalid values."""
    rules = rules_of(state.watched)
    own = METHODS[rules].own if rules else None
    if own is None:
        return None
    try:
        return type(own)().with_knobs(state.lane.in_force)
    except (ConfigError, ValueError):
        return None
