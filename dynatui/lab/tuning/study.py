"""Search spaces of `dynatree` and `linear`, and the Optuna studies that sample them by TPE, in memory or in a database:
an SQLite file or a PostgreSQL server. Imports Optuna, an optional extra.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.storages import RDBStorage
from optuna.trial import BaseTrial, Trial, TrialState
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from decoder.errors import ConfigError, DatabaseError, first_line, quoted, require, shortened
from decoder.knobs import KNOB_GAP
from decoder.methods.adaptive import SHARPEST
from decoder.methods.dynatree import METHOD, PRESETS, DynaTree, shipped_preset
from decoder.methods.linear import Linear
from decoder.tree_rules import Rules

LONGEST_CHAIN = 12
DEEPEST = 16
MOST_NODES = 256
BRANCHINGS = (
    (1, 1, 1), (1, 1, 2), (1, 2, 2), (1, 2, 3), (1, 2, 4), (1, 3, 5), (2, 2, 3), (2, 3, 4), (2, 4, 6),
)  # fmt: skip
BOUNDS = BRANCHINGS, DEEPEST, LONGEST_CHAIN, MOST_NODES
"""Bounds of the spaces. They are part of a study's name, since a study with other bounds cannot be resumed."""
DIGITS = 3
"""Number of decimals to which probabilities and `sharpness` are rounded, so that a preset is easy to read."""
TREE_METHOD = METHOD.name


@dataclass(frozen=True)
class Space:
    method: str
    shipped: Rules
    """Setting that is used without tuning; the search begins with it as leader."""
    rules: Callable[[BaseTrial], Rules]
    starts: tuple[Mapping[str, Any], ...]
    """First suggestions; the shipped setting is the first of them."""
    count: int | None = None
    """Number of settings in the space, if this number is small; None if it is practically unlimited."""


def _tree(suggest: BaseTrial) -> DynaTree:
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
NO_ROW = "Record does not exist."
"""Text of Optuna's KeyError for a deleted study or trial."""


class Study:
    """Sampler of one search space. Every method raises DatabaseError if the study's database can no longer be used."""

    def __init__(self, space: Space, seed: int, storage: RDBStorage | None = None, name: str = "") -> None:
        """Creates a study in memory, or resumes the study of this name in a database. A resumed study first suggests
        the shipped setting, then its own best setting so far.
        """
        self.space = space
        self._url = make_url(storage.url if storage else "sqlite://")
        optuna.logging.set_verbosity(optuna.logging.ERROR)  # errors are also raised, so a log would repeat them
        with _reported(self._url):
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
        with _reported(self._url):
            if self._starts:
                self._study.enqueue_trial(dict(self._starts.popleft()))
            self._open = self._study.ask()
            return self.space.rules(self._open)

    def tell(self, value: float | None) -> None:
        """Reports the value of the setting that `ask` returned last; None if its value is unknown."""
        assert self._open is not None, "tell was called before ask"  # noqa: S101 - a programmer's mistake
        with _reported(self._url):
            self._study.tell(self._open, value, TrialState.FAIL if value is None else None)

    def importance(self) -> Mapping[str, float]:
        """Share of the variance of the speed that each knob explains, largest first; empty with too few trials."""
        with _reported(self._url):
            if self._known() < FEWEST:
                return {}
            shares = get_param_importances(self._study, evaluator=FanovaImportanceEvaluator(n_trees=TREES, seed=0))
        return {name: float(share) for name, share in shares.items()}

    def _known(self) -> int:
        return sum(trial.value is not None for trial in self._study.get_trials(deepcopy=False))


PATIENCE_S = 30
"""Maximum wait for another process's transaction, in seconds."""
SQLITE: Mapping[str, Any] = {"poolclass": NullPool, "connect_args": {"timeout": PATIENCE_S}}
"""Options of SQLAlchemy's engine for SQLite, without a pool: if the constructor of `RDBStorage` fails, it does not
dispose of its engine, and pooled connections would stay open.
"""
SERVER: Mapping[str, Any] = {
    "pool_pre_ping": True,
    "connect_args": {
        "connect_timeout": 10,
        "options": f"-c lock_timeout={PATIENCE_S}s",
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "tcp_user_timeout": 1000 * PATIENCE_S,
    },
}
"""Options of the engine that bound waits; without them, a call to a vanished host blocks for minutes."""
EXAMPLES = "sqlite:///FILE or postgresql://USER@HOST/DATABASE"
POSTGRES = "postgresql+psycopg"


@contextmanager
def database(text: str | None) -> Iterator[RDBStorage | None]:
    """Database at a URL, open in the `with` block; None without a URL. Raises ConfigError or DatabaseError."""
    if text is None:
        yield None
        return
    url = understood(text)
    with _reported(url):
        storage = _storage(url)
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


def understood(text: str) -> URL:
    """The URL; raises ConfigError if it is invalid or the database is not SQLite or PostgreSQL."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ConfigError(f"--storage is {quoted(text)}, which is not a database URL; give {EXAMPLES}") from None
    if url.drivername in ("postgres", "postgresql", POSTGRES):
        return url.set(drivername=POSTGRES)
    require(
        url.drivername == "sqlite",
        f"--storage names a database of the kind {quoted(url.drivername)}, which is not supported; give {EXAMPLES}",
    )
    require(
        url.database not in (None, "", ":memory:"),
        f"--storage is {quoted(text)}, which stores nothing on disk; give sqlite:///FILE",
    )
    return url


def _storage(url: URL) -> RDBStorage:
    template = url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}")
    try:
        return RDBStorage(template, engine_kwargs=dict(SQLITE if url.drivername == "sqlite" else SERVER))
    except ImportError as error:
        raise DatabaseError(
            "PostgreSQL needs psycopg, which cannot be imported here; run pip install 'dynatui[postgres]'"
        ) from error
    except RuntimeError as error:
        raise DatabaseError(
            f"{shortened(url)} was made by another version of Optuna: {first_line(error)}; set --storage to another "
            "database"
        ) from error


@contextmanager
def _reported(url: URL) -> Iterator[None]:
    """Turns errors of the database into DatabaseError, with the driver's own error as the reason."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        first: BaseException = error
        while cause := first.__cause__ or first.__context__:
            first = cause
        files = url.drivername == "sqlite"
        check = "its folder exists, is writable and has space" if files else "the server runs and accepts this user"
        raise DatabaseError(
            f"cannot use the database {shortened(url)}: {first_line(first)}; check that {check}, then run the same "
            "command again"
        ) from error
    except KeyError as error:
        if error.args != (NO_ROW,):
            raise
        raise DatabaseError(
            f"the study was deleted from {shortened(url)}; run the same command again to start over"
        ) from error
