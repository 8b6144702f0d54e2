"""Search spaces of methods, and Optuna studies that sample them by TPE, in memory or in a database. Optuna is an
optional extra, imported when a study is made.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from decoder.errors import ConfigError
from decoder.knobs import KNOB_GAP
from decoder.methods.adaptive import SHARPEST
from decoder.methods.dynatree import METHOD, PRESETS, DynaTree, shipped_preset
from decoder.methods.linear import Linear
from decoder.tree_rules import Rules

if TYPE_CHECKING:
    from optuna.storages import RDBStorage
    from optuna.trial import BaseTrial, Trial

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

STARTUP = 12
"""Number of trials at the beginning, in which the sampler does not yet use the values of earlier trials."""
TREES = 32
"""Number of trees in the random forest that estimates knob importance."""
FEWEST = 12
"""Smallest number of measured settings for an estimate of knob importance."""


def require_optuna() -> None:
    """Raises ConfigError if Optuna or scikit-learn is not installed; the knob importance needs scikit-learn."""
    for name, module in (("optuna", "optuna"), ("scikit-learn", "sklearn")):
        if find_spec(module) is None:
            raise ConfigError(f"tuning needs {name}, which is not installed; pip install 'dynatui[bench]'")


@contextmanager
def database(url: str | None) -> Iterator["RDBStorage | None"]:
    """Trial database at a URL, open in the `with` block; None without a URL. Raises ConfigError or DatabaseError."""
    require_optuna()
    if url is None:
        yield None
        return
    from dynatui.lab.tuning.database import opened  # noqa: PLC0415 - imports an optional dependency

    with opened(url) as storage:
        yield storage


class Study:
    """Sampler of one search space. Every method raises DatabaseError if the study's database can no longer be used."""

    def __init__(self, space: Space, seed: int, storage: "RDBStorage | None" = None, name: str = "") -> None:
        """Creates a study in memory, or resumes the study of this name in a database. A resumed study first suggests
        the shipped setting, then its own best setting so far. Raises ConfigError if Optuna is not installed.
        """
        require_optuna()
        import optuna  # noqa: PLC0415 - an optional dependency

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space = space
        self._storage = storage
        with self._reported():
            self._study = optuna.create_study(
                storage=storage,
                sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP),
                direction="maximize",
                study_name=f"{name}: {space.method}" if storage else None,
                load_if_exists=True,
            )
            # Each initial setting is enqueued just before its trial. If all initial settings were enqueued now and the
            # search ended early, the next search in this database would begin with the settings left in the queue.
            self._starts = deque([space.starts[0], self._study.best_params] if self._known() else space.starts)
        self._open: Trial | None = None

    def ask(self) -> Rules:
        with self._reported():
            if self._starts:
                self._study.enqueue_trial(dict(self._starts.popleft()))
            self._open = self._study.ask()
            return self.space.rules(self._open)

    def tell(self, value: float | None) -> None:
        from optuna.trial import TrialState  # noqa: PLC0415

        assert self._open is not None, "tell was called before ask"  # noqa: S101 - a programmer's mistake
        with self._reported():
            if value is None:
                self._study.tell(self._open, state=TrialState.FAIL)
            else:
                self._study.tell(self._open, value)

    def importance(self) -> Mapping[str, float]:
        """Share of the variance of the speed that each knob explains, largest first; empty with too few trials."""
        from optuna.importance import FanovaImportanceEvaluator, get_param_importances  # noqa: PLC0415

        with self._reported():
            if self._known() < FEWEST:
                return {}
            shares = get_param_importances(self._study, evaluator=FanovaImportanceEvaluator(n_trees=TREES, seed=0))
        return {name: float(share) for name, share in shares.items()}

    def _known(self) -> int:
        return sum(trial.value is not None for trial in self._study.get_trials(deepcopy=False))

    def _reported(self) -> AbstractContextManager[None]:
        if self._storage is None:
            return nullcontext()
        from dynatui.lab.tuning.database import reported  # noqa: PLC0415 - imports an optional dependency

        return reported(self._storage.url)
