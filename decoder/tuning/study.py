"""What suggests settings and learns from how they did: Optuna's TPE, in memory or in a database.

The one module that knows Optuna, which is an extra and imported when it is needed.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from decoder.config import Rules
from decoder.errors import ConfigError, first_line
from decoder.tuning.space import Space

if TYPE_CHECKING:
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


class Study:
    """Suggests settings of one space; each is told once how it did."""

    def __init__(self, space: Space, seed: int, storage: str | None = None, name: str = "") -> None:
        """Begins anew in memory, or goes on with what a database holds under a name.

        Raises:
            ConfigError: Optuna is not installed, or the database cannot be used.
        """
        require_optuna()
        import optuna  # noqa: PLC0415 - an extra

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space = space
        with _storage_faults():
            self._study = optuna.create_study(
                storage=storage,
                sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP),
                direction="maximize",
                study_name=f"{name}: {space.method}" if storage else None,
                load_if_exists=True,
            )
            starts = list(space.starts)
            if any(trial.value is not None for trial in self._study.get_trials(deepcopy=False)):
                starts.insert(1, self._study.best_params)
            for start in starts:
                self._study.enqueue_trial(dict(start))
        self._open: Trial | None = None

    def ask(self) -> Rules:
        """The next setting; raises ConfigError where the database cannot be used, as the next ones do."""
        with _storage_faults():
            self._open = self._study.ask()
            return self.space.rules(self._open)

    def tell(self, value: float | None) -> None:
        """How good the setting was that was asked for last; None: that is not known."""
        from optuna.trial import TrialState  # noqa: PLC0415

        assert self._open is not None, "nothing was asked for"  # noqa: S101 - a programmer's mistake
        with _storage_faults():
            if value is None:
                self._study.tell(self._open, state=TrialState.FAIL)
            else:
                self._study.tell(self._open, value)

    def importance(self) -> Mapping[str, float]:
        """What share of the differences between settings each knob explains, largest first; empty where few are known.

        By functional analysis of variance, which takes a few tenths of a second.
        """
        from optuna.importance import FanovaImportanceEvaluator, get_param_importances  # noqa: PLC0415

        with _storage_faults():
            known = sum(trial.value is not None for trial in self._study.get_trials(deepcopy=False))
            if known < FEWEST:
                return {}
            found = get_param_importances(self._study, evaluator=FanovaImportanceEvaluator(n_trees=TREES, seed=0))
        return {name: float(share) for name, share in found.items()}


@contextmanager
def _storage_faults() -> Iterator[None]:
    """Within, what a database says becomes a user's error; its address may hold a password and is not repeated."""
    from optuna.exceptions import OptunaError  # noqa: PLC0415
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

    try:
        yield
    except (OptunaError, SQLAlchemyError, ImportError) as error:
        remedy = "give --storage a database that can be reached, such as sqlite:///tuning.db, or leave it out"
        raise ConfigError(f"the database of --storage cannot be used: {first_line(error)}; {remedy}") from None
