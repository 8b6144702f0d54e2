"""Every knob, once: what sliders, drawer, help, history lines and the command line call it, and how it is moved.

What a knob does and how far it goes is decided in `decoder.config`; here it only gets a name that people read.
"""

from dataclasses import dataclass, replace
from typing import Any

from decoder.config import AUTO, DynaTree
from decoder.errors import ConfigError
from decoder.knobs import KNOBS, KnobName
from dynatui.fold.state import RunState

_TUPLES: dict[KnobName, int] = {"b_min": 0, "b_mid": 1, "b_max": 2}


@dataclass(frozen=True)
class KnobInfo:
    """One knob as people see it."""

    name: KnobName
    symbol: str
    """As in the paper."""
    meaning: str
    """In plain words, at most 40 characters."""
    step: float
    coarse: float
    """The step with shift."""
    integer: bool
    option: str
    """Option of the command line that sets it; some set several knobs at once."""

    @property
    def digits(self) -> int:
        """Decimals that it is written with."""
        return 0 if self.integer else 2

    def written(self, value: float) -> str:
        """A value as people write it: .85, 5.3, 256, on, auto."""
        if self.name == "history":
            return "on" if value else "off"
        if self.name == "n_max" and value == AUTO:
            return "auto"
        text = f"{value:.{self.digits}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return text[1:] if text.startswith("0.") else text


TABLE: tuple[KnobInfo, ...] = (
    KnobInfo("tau_h", "τh", "draft sure from here on: fewest guesses", 0.05, 0.2, integer=False, option="--tau-h"),
    KnobInfo("tau_l", "τl", "draft unsure below this: most guesses", 0.05, 0.2, integer=False, option="--tau-l"),
    KnobInfo("d0", "D0", "base depth: likely paths reach it", 1, 2, integer=False, option="--d0"),
    KnobInfo("history", "history", "past rounds move D0 and τh", 1, 1, integer=True, option="--history"),
    KnobInfo("d_max", "D_max", "no path is deeper", 1, 4, integer=True, option="--d-max"),
    KnobInfo("b_min", "B_min", "guesses where the draft is sure", 1, 2, integer=True, option="--branching"),
    KnobInfo("b_mid", "B_mid", "guesses in between", 1, 2, integer=True, option="--branching"),
    KnobInfo("b_max", "B_max", "guesses where the draft is unsure", 1, 2, integer=True, option="--branching"),
    KnobInfo("rho_stop", "rho_stop", "less probable paths end", 0.05, 0.2, integer=False, option="--rho-stop"),
    KnobInfo("rho_deep", "rho_deep", "the same, from the base depth on", 0.05, 0.2, integer=False, option="--rho-deep"),
    KnobInfo("tau", "τ", "less probable paths end, as by rho_stop", 0.01, 0.05, integer=False, option="--tau"),
    KnobInfo("n_max", "N_max", "most guesses a round; auto: what pays", 8, 64, integer=True, option="--n-max"),
    KnobInfo("k", "K", "length of linear's chain", 1, 4, integer=True, option="--k"),
    KnobInfo("fixed_depth", "D", "depth of the fixed tree", 1, 4, integer=True, option="--fixed"),
    KnobInfo("fixed_branching", "B", "guesses at each node of the fixed tree", 1, 2, integer=True, option="--fixed"),
    KnobInfo("fixed_tau", "fixed τ", "as τ, for the fixed tree", 0.01, 0.05, integer=False, option="--fixed"),
)
"""In the order of `decoder.knobs.KNOBS`: those of the first row of sliders come first."""

_BY_NAME = {info.name: info for info in TABLE}


def info(name: KnobName) -> KnobInfo:
    """What is known of one knob."""
    return _BY_NAME[name]


def rules_in_force(state: RunState) -> DynaTree | None:
    """DynaTree's rules as the watched method obeys them now; None for a method without them.

    A recording may claim anything: values that are no rules give None.
    """
    parameters = state.run.methods.get(state.watched, {}) if state.run else {}
    if state.knobs is None:
        return None
    names = [name for name in KNOBS if name in state.settings]
    given: dict[str, Any] = {
        name: int(state.settings[name]) if info(name).integer else state.settings[name]
        for name in names
        if name in DynaTree.__dataclass_fields__
    }
    branches = [int(state.settings[name]) for name in _TUPLES if name in state.settings]
    if len(branches) == len(_TUPLES):
        given["branching"] = tuple(branches)
    if parameters.get("selection") == "best":
        given["selection"] = "best"
    knobs = state.knobs
    given |= {"tau_h": knobs.tau_h, "tau_l": knobs.tau_l, "d0": knobs.d0, "history": bool(state.history)}
    try:
        return replace(DynaTree(), **given)
    except (ConfigError, ValueError):
        return None
