"""What suggests settings and learns from how they did: Optuna's TPE, in memory or in a database.

With `optuna_database` the one module that knows Optuna, which is an extra and imported when it is needed.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING

from decoder.bench.database import understood
from decoder.errors import ConfigError
from decoder.tree_rules import Rules
from decoder.tuning.space import Space

if TYPE_CHECKING:
    from optuna.storages import RDBStorage
    from optuna.trial import Trial

STARTUP = 12
"""Settings that are tried before the sampler goes by what it has learnt."""
TREES = 32
"""Of the forest by which knobs are compared."""
FEWEST = 12
"""Settings that must be known before knobs are compared."""


def require_optuna() -> None:
    """Raises ConfigError where the search has nothing to search with, or nothing to compare knobs with."""
    for name, module in (("optuna", "optuna"), ("scikit-learn", "sklearn")):
        if find_spec(module) is None:
            raise ConfigError(f"tuning needs {name}, which is not installed; pip install 'dynatui[bench]'")


@contextmanager
def database(url: str | None) -> Iterator["RDBStorage | None"]:
    """The database of a URL, open within; None where none is named.

    Raises:
        ConfigError: It is no URL of a database, or Optuna is not installed.
        DatabaseError: The database cannot be used.
    """
    require_optuna()
    if url is None:
        yield None
        return
    from decoder.tuning.optuna_database import opened  # noqa: PLC0415 - imports an extra

    with opened(understood(url)) as storage:
        yield storage


class Study:
    """Suggests settings of one space; each is told once how it did.

    Where it keeps them in a database, all that it does raises DatabaseError once that cannot be used.
    """

    def __init__(self, space: Space, seed: int, storage: "RDBStorage | None" = None, name: str = "") -> None:
        """Begins anew in memory, or goes on with what a database holds under a name: with its best setting.

        Raises:
            ConfigError: Optuna is not installed.
        """
        require_optuna()
        import optuna  # noqa: PLC0415 - an extra

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
            known = any(trial.value is not None for trial in self._study.get_trials(deepcopy=False))
            # Not all enqueued at once: what a search that ends early leaves there would come first in the next one.
            self._starts = deque([space.starts[0], self._study.best_params] if known else space.starts)
        self._open: Trial | None = None

    def ask(self) -> Rules:
        """The next setting."""
        with self._reported():
            if self._starts:
                self._study.enqueue_trial(dict(self._starts.popleft()))
            self._open = self._study.ask()
            return self.space.rules(self._open)

    def tell(self, value: float | None) -> None:
        """How good the setting was that was asked for last; None: that is not known."""
        from optuna.trial import TrialState  # noqa: PLC0415

        assert self._open is not None, "nothing was asked for"  # noqa: S101 - a programmer's mistake
        with self._reported():
            if value is None:
                self._study.tell(self._open, state=TrialState.FAIL)
            else:
                self._study.tell(self._open, value)

    def importance(self) -> Mapping[str, float]:
        """What share of the differences between settings each knob explains, largest first; empty where few are known.

        By functional analysis of variance, which takes a few tenths of a second.
        """
        from optuna.importance import FanovaImportanceEvaluator, get_param_importances  # noqa: PLC0415

        with self._reported():
            known = sum(trial.value is not None for trial in self._study.get_trials(deepcopy=False))
            if known < FEWEST:
                return {}
            found = get_param_importances(self._study, evaluator=FanovaImportanceEvaluator(n_trees=TREES, seed=0))
        return {name: float(share) for name, share in found.items()}

    def _reported(self) -> AbstractContextManager[None]:
        """Within, what the database says becomes one line."""
        if self._storage is None:
            return nullcontext()
        from decoder.tuning.optuna_database import reported  # noqa: PLC0415 - imports an extra

        return reported(understood(self._storage.engine.url.render_as_string(hide_password=False)))
