"""The study that suggests settings: seeded, informed of results, and kept in a database if one is named."""

import builtins
import importlib.util
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from decoder.errors import DatabaseError
from decoder.methods.dynatree import DynaTree
from dynatui.lab.tuning import study as module
from dynatui.lab.tuning.study import CHAIN, FEWEST, Study, database, trees

TREE = trees(0)


def played(study: Study, trials: int) -> list[Any]:
    """Suggested settings of a study; settings near 12 nodes get the highest value."""
    found = list[Any]()
    for _ in range(trials):
        rules = study.ask()
        assert isinstance(rules, DynaTree)
        found.append(rules)
        study.tell(-abs(rules.n_max - 12) / 12)
    return found


def test_the_shipped_setting_comes_first_and_one_seed_is_one_search() -> None:
    one, other, third = (played(Study(TREE, seed), 20) for seed in (1, 1, 2))
    assert one[0] == TREE.shipped
    assert one == other != third


def test_the_sampler_learns() -> None:
    found = [rules.n_max for rules in played(Study(TREE, 0), 60)]
    assert sum(abs(n - 12) for n in found[-15:]) < sum(abs(n - 12) for n in found[len(TREE.starts) : 30])


def test_knobs_are_compared_once_enough_is_known() -> None:
    study = Study(TREE, 0)
    played(study, FEWEST - 1)
    assert study.importance() == {}
    played(study, 40)
    shares = study.importance()
    assert next(iter(shares)) == "n_max"
    assert sum(shares.values()) == pytest.approx(1)
    thresholds = {"tau_h", "tau_l", "rho_deep", "rho_stop", "sharpness"}
    assert set(shares) == {"d_max", "branching", "d0", "history", "n_max"} | thresholds


def test_a_setting_of_unknown_worth_is_no_lesson() -> None:
    study = Study(CHAIN, 0)
    for _ in range(FEWEST):
        study.ask()
        study.tell(None)
    assert study.importance() == {}


def test_a_database_keeps_what_was_found(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tuning.db'}"
    with database(url) as storage:
        best = max(played(Study(TREE, 0, storage, "pair"), 10), key=lambda rules: -abs(rules.n_max - 12))
    with database(url) as storage:
        again = Study(TREE, 1, storage, "pair")
        assert played(again, 2)[1].n_max == best.n_max
        assert played(Study(TREE, 0, storage, "another pair"), 2)[1].n_max != best.n_max


def test_a_search_that_ended_early_leaves_nothing_that_comes_before_the_best(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tuning.db'}"
    with database(url) as storage:
        best = max(played(Study(TREE, 0, storage, "pair"), 4), key=lambda rules: -abs(rules.n_max - 12))
    with database(url) as storage:
        played(Study(TREE, 1, storage, "pair"), 1)
    with database(url) as storage:
        first, second = played(Study(TREE, 2, storage, "pair"), 2)
    assert (first, second.n_max) == (TREE.shipped, best.n_max)


def test_a_database_that_cannot_be_opened_is_one_line() -> None:
    with (
        pytest.raises(DatabaseError, match=r"^.*unable to open database file.*$"),
        database("sqlite:////nonesuch/x.db"),
    ):
        pass


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks for open files in /proc")
def test_a_database_that_is_refused_is_closed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tuning.db'}"
    with database(url):
        pass
    with closing(sqlite3.connect(tmp_path / "tuning.db")) as file, file:
        file.execute("UPDATE alembic_version SET version_num = 'v99.0.0.a'")
    with pytest.raises(DatabaseError, match="was made by another version of Optuna: ") as refusal, database(url):
        pass
    assert refusal.value
    assert not [file for file in Path("/proc/self/fd").iterdir() if str(tmp_path) in os.path.realpath(file)]


def test_a_database_that_goes_away_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "tuning.db"
    with database(f"sqlite:///{file}") as storage:
        study = Study(TREE, 0, storage, "pair")
        study.ask()
        file.write_bytes(b"no database any more" * 1000)
        with pytest.raises(DatabaseError, match=r"^cannot use the database sqlite:///.*not a database"):
            study.tell(1.0)


def test_importing_the_module_imports_no_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        assert not name.startswith(("optuna", "sqlalchemy"))
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    spec = importlib.util.spec_from_file_location("fresh", module.__file__)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
