"""Every knob, once: what sliders, drawer, help, history lines and the command line call it, and how it is moved.

What a knob does and how far it goes is decided in `decoder.config`; here it only gets a name that people read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from decoder.config import AdaptiveTree, Auto, DynaTree, Fixed, Linear, Rules, RulesName
from decoder.errors import ConfigError
from decoder.events import Limit
from decoder.knobs import KNOBS, SWITCHES, KnobName, parameter_of
from decoder.methods import METHODS
from dynatui.state.lane import LaneState
from dynatui.state.run_state import RunState

_SWITCHES: Mapping[KnobName, tuple[str, str]] = {"history": ("off", "on"), "selection": ("bfs", "best")}
_BRANCHES: tuple[KnobName, ...] = ("b_min", "b_mid", "b_max")


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
    def parameter(self) -> str:
        """The parameter that it turns."""
        return parameter_of(self.name)

    @property
    def digits(self) -> int:
        """Decimals that it is written with."""
        if self.integer:
            return 0
        return 2 if self.step >= 1 else 3

    def written(self, value: float) -> str:
        """A value as people write it: .85, 5.3, 256, on."""
        if self.name in _SWITCHES:
            return _SWITCHES[self.name][value >= 0.5]
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
    KnobInfo("rho_stop", "rho_stop", "less probable paths end", 0.01, 0.05, integer=False, option="--rho-stop"),
    KnobInfo("rho_deep", "rho_deep", "the same, from the base depth on", 0.05, 0.2, integer=False, option="--rho-deep"),
    KnobInfo("tau", "τ", "less probable paths end, as by rho_stop", 0.01, 0.05, integer=False, option="--tau"),
    KnobInfo("n_max", "N_max", "most guesses a round", 1, 8, integer=True, option="--n-max"),
    KnobInfo("selection", "choice", "who stays: first come, or likeliest", 1, 1, integer=True, option="--selection"),
    KnobInfo("k", "K", "length of the chain", 1, 4, integer=True, option="--k"),
    KnobInfo("fixed_depth", "D", "depth of the tree", 1, 4, integer=True, option="--fixed"),
    KnobInfo("fixed_branching", "B", "guesses at each node", 1, 2, integer=True, option="--fixed"),
    KnobInfo("fixed_tau", "τ", "less probable paths end", 0.01, 0.05, integer=False, option="--fixed"),
)
"""In the order of `decoder.knobs.KNOBS`: those of the first row of sliders come first."""

_BY_NAME = {info.name: info for info in TABLE}


def info(name: KnobName) -> KnobInfo:
    """What is known of one knob."""
    return _BY_NAME[name]


@dataclass(frozen=True)
class Slider:
    """A knob that has keys of its own."""

    knob: KnobName
    meaning: str
    """In two words."""
    caps: tuple[str, str]
    """Keys that turn it down and up, unless they are bound anew."""

    @property
    def actions(self) -> tuple[str, str]:
        """What these keys do, as the key map names it."""
        down, up = self.caps
        return f"turn({down!r})", f"turn({up!r})"


SLIDERS: Mapping[RulesName, tuple[Slider, ...]] = {
    "dynatree": (
        Slider("tau_h", "sure from", ("[", "]")),
        Slider("tau_l", "unsure below", ("{", "}")),
        Slider("d0", "base depth", ("-", "=")),
    ),
    "auto": (
        Slider("tau_h", "sure from", ("[", "]")),
        Slider("tau_l", "unsure below", ("{", "}")),
        Slider("d0", "base depth", ("-", "=")),
    ),
    "linear": (Slider("k", "chain length", ("-", "=")),),
    "fixed": (
        Slider("fixed_branching", "guesses a node", ("[", "]")),
        Slider("fixed_tau", "path at least", ("{", "}")),
        Slider("fixed_depth", "depth", ("-", "=")),
    ),
}
"""The knobs of each parameter set that are turned most."""


def rules_of(method: str) -> RulesName | None:
    """The parameter set that a method obeys; None for a method without knobs, and for one that is not known here."""
    return METHODS[method].rules if method in METHODS else None


def sliders_of(method: str) -> tuple[Slider, ...]:
    """The knobs of a method that have keys of their own."""
    rules = rules_of(method)
    return SLIDERS[rules] if rules else ()


_BOUNDS: dict[Limit, str] = {"cost": "cost", "context": "context"}


def limit_name(limit: Limit) -> str:
    """What limits a tree, as screen and help call it: a knob by its symbol, else the reason."""
    return _BOUNDS.get(limit) or next(knob.symbol for knob in TABLE if knob.name == limit)


def rules_in_force(state: RunState) -> Rules | None:
    """The rules that the watched method obeys now; None for a method without rules.

    A recording may claim anything: values that are no rules give None.
    """
    lane, name = state.lane, rules_of(state.watched)
    given: dict[str, Any] = {knob: _typed(knob, lane.settings[knob]) for knob in KNOBS if knob in lane.settings}
    try:
        match name:
            case "dynatree":
                return DynaTree(**_adaptive(DynaTree, lane, given))
            case "auto":
                return Auto(**_adaptive(Auto, lane, given))
            case "linear":
                return Linear(given["k"])
            case "fixed":
                shape = given["fixed_depth"], given["fixed_branching"]
                return Fixed(*shape, given["fixed_tau"], given["n_max"])
            case None:
                return None
    except (ConfigError, ValueError, KeyError):
        return None


def _typed(name: KnobName, value: float) -> object:
    if name in SWITCHES:
        return SWITCHES[name][value >= 0.5]
    return int(value) if info(name).integer else value


def _adaptive(kind: type[AdaptiveTree], lane: LaneState, given: dict[str, Any]) -> dict[str, Any]:
    """Parameters of an adaptive tree; a recording that lacks some is taken to have the usual ones."""
    branches = [given[name] for name in _BRANCHES if name in given]
    if len(branches) == len(_BRANCHES):
        given["branching"] = tuple(branches)
    if lane.knobs is not None:
        given |= {"tau_h": lane.knobs.tau_h, "tau_l": lane.knobs.tau_l, "d0": lane.knobs.d0}
    return {name: value for name, value in given.items() if name in kind.__dataclass_fields__}
