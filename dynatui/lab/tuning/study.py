"""Study of one search space: Optuna's TPE sampler, in memory or in a database.

Optuna is an optional extra: only this module and `optuna_database` import it, and only when it is needed.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING

from decoder.errors import ConfigError
from decoder.tree_rules import Rules
from dynatui.lab.tuning.database import understood
from dynatui.lab.tuning.space import Space

if TYPE_CHECKING:
    from optuna.storages import RDBStorage
    from optuna.trial import Trial

STARTUP = 12
"""Number of trials at the beginning, in which the sampler does not yet use the values of earlier trials."""
TREES = 32
"""Number of trees in the random forest that estimates knob importance."""
FEWEST = 12
"""Smallest number of measured settings for an estimate of knob importance."""


def require_optuna() -> None:
    """Raises ConfigError if Optuna, or scikit-learn (for knob importance), is not installed."""
    for name, module in (("optuna", "optuna"), ("scikit-learn", "sklearn")):
        if find_spec(module) is None:
            raise ConfigError(f"tuning needs {name}, which is not installed; pip install 'dynatui[bench]'")


@contextmanager
def database(url: str | None) -> Iterator["RDBStorage | None"]:
    """Database of trials at a URL, opened for the `with` block; None if no URL is given.

    Raises:
        ConfigError: `url` is not the URL of a database, or Optuna is not installed.
        DatabaseError: The database cannot be used.
    """
    require_optuna()
    if url is None:
        yield None
        return
    from dynatui.lab.tuning.optuna_database import opened  # noqa: PLC0415 - imports an optional dependency

    with opened(understood(url)) as storage:
        yield storage


class Study:
    """Sampler of one search space; it suggests settings and receives the value of each suggested setting.

    A study with a database raises DatabaseError in every method if the database can no longer be used.
    """

    def __init__(self, space: Space, seed: int, storage: "RDBStorage | None" = None, name: str = "") -> None:
        """Creates a study in memory, or resumes the study of this name in a database.

        A resumed study first suggests the shipped setting, and then the study's best setting so far.

        Raises:
            ConfigError: Optuna is not installed.
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
            known = any(trial.value is not None for trial in self._study.get_trials(deepcopy=False))
            # Each initial setting is enqueued just before its trial. If all initial settings were enqueued now and the
            # search ended early, the next search in this database would begin with the settings left in the queue.
            self._starts = deque([space.starts[0], self._study.best_params] if known else space.starts)
        self._open: Trial | None = None

    def ask(self) -> Rules:
        """Next setting suggested by the sampler."""
        with self._reported():
            if self._starts:
                self._study.enqueue_trial(dict(self._starts.popleft()))
            self._open = self._study.ask()
            return self.space.rules(self._open)

    def tell(self, value: float | None) -> None:
        """Reports the value of the last suggested setting; None if the value is unknown."""
        from optuna.trial import TrialState  # noqa: PLC0415

        assert self._open is not None, "tell was called before ask"  # noqa: S101 - a programmer's mistake
        with self._reported():
            if value is None:
                self._study.tell(self._open, state=TrialState.FAIL)
            else:
                self._study.tell(self._open, value)

    def importance(self) -> Mapping[str, float]:
        """Share of the variance between settings that each knob explains, the largest share first. Empty if too few
        settings are measured.

        Computed by functional analysis of variance, in a few tenths of a second.
        """
        from optuna.importance import FanovaImportanceEvaluator, get_param_importances  # noqa: PLC0415

        with self._reported():
            known = sum(trial.value is not None for trial in self._study.get_trials(deepcopy=False))
            if known < FEWEST:
                return {}
            shares = get_param_importances(self._study, evaluator=FanovaImportanceEvaluator(n_trees=TREES, seed=0))
        return {name: float(share) for name, share in shares.items()}

    def _reported(self) -> AbstractContextManager[None]:
        """Converts errors of the database into one-line errors of this package."""
        if self._storage is None:
            return nullcontext()
        from dynatui.lab.tuning.optuna_database import reported  # noqa: PLC0415 - imports an optional dependency

        return reported(understood(self._storage.engine.url.render_as_string(hide_password=False)))
