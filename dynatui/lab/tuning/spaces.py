"""Search spaces of `dynatree` and `linear`. Does not import Optuna, which is an optional extra."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from decoder.knobs import KNOB_GAP
from decoder.methods.adaptive import SHARPEST
from decoder.methods.dynatree import METHOD, PRESETS, DynaTree, shipped_preset
from decoder.methods.linear import Linear
from decoder.tree_rules import Rules

if TYPE_CHECKING:
    from optuna.trial import BaseTrial

LONGEST_CHAIN = 12
DEEPEST = 16
MOST_NODES = 256
BRANCHINGS = (
    (1, 1, 1), (1, 1, 2), (1, 2, 2), (1, 2, 3), (1, 2, 4), (1, 3, 5), (2, 2, 3), (2, 3, 4), (2, 4, 6),
)  # fmt: skip
DIGITS = 3
"""Number of decimals to which probabilities and `sharpness` are rounded, so that a preset is easy to read."""
TREE_METHOD = METHOD.name


@dataclass(frozen=True)
class Space:
    method: str
    shipped: Rules
    """Setting that is used without tuning; the search begins with it as leader."""
    rules: Callable[["BaseTrial"], Rules]
    starts: tuple[Mapping[str, Any], ...]
    """First suggestions; the shipped setting is the first of them."""
    count: int | None = None
    """Number of settings in the space, if this number is small; None if it is practically unlimited."""


def _tree(suggest: "BaseTrial") -> DynaTree:
    d_max = suggest.suggest_int("d_max", 2, DEEPEST)
    tau_h = suggest.suggest_float("tau_h", 0.2, 1.0)
    tau_l = suggest.suggest_float("tau_l", 0.01, 0.9)
    rho_deep = suggest.suggest_float("rho_deep", 0.01, 0.95)
    rho_stop = suggest.suggest_float("rho_stop", 0.002, 0.8, log=True)
    sharpness = suggest.suggest_float("sharpness", 1.0, SHARPEST)
    low, mid, high = map(int, suggest.suggest_categorical("branching", _BRANCHINGS).split(","))
    return DynaTree(
        d0=float(min(suggest.suggest_int("d0", 1, 10), d_max - 1)),
        d_max=d_max,
        branching=(low, mid, high),
        tau_h=round(tau_h, DIGITS),
        tau_l=round(min(tau_l, tau_h - KNOB_GAP), DIGITS),
        rho_stop=round(min(rho_stop, rho_deep), DIGITS),
        rho_deep=round(rho_deep, DIGITS),
        tau=0,
        sharpness=round(sharpness, DIGITS),
        history=bool(suggest.suggest_categorical("history", (False, True))),
        n_max=suggest.suggest_int("n_max", 2, MOST_NODES, log=True),
        selection="best",
    )


_BRANCHINGS = tuple(",".join(map(str, each)) for each in BRANCHINGS)
"""Branchings as text, since an Optuna study cannot store tuples."""
_TURNED = ("d0", "d_max", "tau_h", "tau_l", "rho_stop", "rho_deep", "sharpness", "history", "n_max")


def _suggestion(rules: DynaTree) -> dict[str, Any]:
    own = {name: getattr(rules, name) for name in _TURNED}
    return own | {"d0": int(rules.d0), "branching": ",".join(map(str, rules.branching))}


def _first_trees(shipped: DynaTree) -> tuple[DynaTree, ...]:
    """The shipped preset, variants of it, and the other presets. Most variants have another node limit, since the best
    node limit depends on the machine.
    """
    sizes = [replace(shipped, n_max=n_max) for n_max in (6, 4, 20, 48)]
    shallow, deep = replace(shipped, d0=1.0, n_max=5), replace(shipped, d0=min(4.0, shipped.d_max - 1.0))
    return tuple(dict.fromkeys((shipped, *sizes, shallow, deep, *PRESETS.values())))


def trees(temperature: float) -> Space:
    """Search space of DynaTree; the search starts from the preset that is shipped for this temperature."""
    shipped = PRESETS[shipped_preset(temperature)]
    return Space(TREE_METHOD, shipped, _tree, tuple(map(_suggestion, _first_trees(shipped))))


CHAIN = Space(
    "linear",
    Linear(),
    lambda suggest: Linear(suggest.suggest_int("k", 1, LONGEST_CHAIN)),
    tuple({"k": k} for k in (Linear().k, 3, 7, 2, 4, 6, 1, 9, 8, 10, 11, 12)),
    LONGEST_CHAIN,
)
