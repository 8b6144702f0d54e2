"""The study that suggests valid settings: seeded, informed of results, and kept in a database if one is named."""

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import optuna
import pytest
from optuna.study import StudyDirection
from optuna.trial import FixedTrial

from decoder.errors import ConfigError, DatabaseError
from decoder.methods.dynatree import PRESETS, DynaTree, shipped_preset
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from decoder.tree_rules import Rules
from dynatui.lab.tuning.study import CHAIN, FEWEST, LONGEST_CHAIN, Space, Study, database, trees, understood
from tests.postgres import binaries, new_database

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


def test_the_sampler_learns_and_knobs_are_compared_once_enough_is_known() -> None:
    study = Study(TREE, 0)
    found = played(study, FEWEST - 1)
    assert study.importance() == {}
    distances = [abs(rules.n_max - 12) for rules in found + played(study, 61 - FEWEST)]
    assert sum(distances[-15:]) < sum(distances[len(TREE.starts) : 30])
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


def test_a_database_keeps_what_was_found_and_nothing_of_a_search_that_ended_early_comes_before_it(
    tmp_path: Path,
) -> None:
    def searched(seed: int, trials: int, name: str = "pair") -> list[Any]:
        with database(f"sqlite:///{tmp_path / 'tuning.db'}") as storage:
            return played(Study(TREE, seed, storage, name), trials)

    best = max(searched(0, 10), key=lambda rules: -abs(rules.n_max - 12))
    assert searched(1, 1) == [TREE.shipped]
    first, second = searched(2, 2)
    assert (first, second.n_max) == (TREE.shipped, best.n_max)
    assert searched(0, 2, "another pair")[1].n_max != best.n_max


def test_a_database_of_another_version_is_refused_and_closed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tuning.db'}"
    with database(url):
        pass
    with closing(sqlite3.connect(tmp_path / "tuning.db")) as file, file:
        file.execute("UPDATE alembic_version SET version_num = 'v99.0.0.a'")
    with pytest.raises(DatabaseError, match="was made by another version of Optuna: ") as refusal, database(url):
        pass
    assert refusal.value  # it is alive, and would hold what is open
    assert not [each for each in Path("/proc/self/fd").glob("*") if str(tmp_path) in os.path.realpath(each)]


def test_a_database_that_goes_away_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "tuning.db"
    with database(f"sqlite:///{file}") as storage:
        study = Study(TREE, 0, storage, "pair")
        study.ask()
        file.write_bytes(b"no database any more" * 1000)
        with pytest.raises(DatabaseError, match=r"^cannot use the database sqlite:///.*not a database"):
            study.tell(1.0)


def test_a_study_that_was_deleted_meanwhile_is_one_line(tmp_path: Path) -> None:
    with database(f"sqlite:///{tmp_path / 'tuning.db'}") as storage:
        assert storage
        study = Study(TREE, 0, storage, "pair")
        storage.delete_study(storage.get_study_id_from_name("pair: dynatree"))
        with pytest.raises(DatabaseError, match="the study was deleted from sqlite:///"):
            study.ask()


def test_every_suggestion_is_a_possible_setting() -> None:
    random = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(300):
        assert isinstance(TREE.rules(random.ask()), DynaTree)
        assert isinstance(CHAIN.rules(random.ask()), Linear)


def started(space: Space) -> list[Rules]:
    return [space.rules(FixedTrial(dict(start))) for start in space.starts]


@pytest.mark.parametrize("temperature", [0, 0.6])
def test_every_start_is_within_the_bounds_and_the_default_of_a_run_at_the_temperature_is_the_first(
    temperature: float,
) -> None:
    space, usual = trees(temperature), RunConfig(temperature=temperature).of(DynaTree)
    first, *others = started(space)
    assert first == space.shipped == usual == PRESETS[shipped_preset(temperature)]
    assert {PRESETS["tuned"], PRESETS["sampled"]} <= {first, *others}


def test_all_chains_are_among_the_starts() -> None:
    first, *others = started(CHAIN)
    assert first == CHAIN.shipped == Linear()
    assert len({first, *others}) == CHAIN.count == LONGEST_CHAIN


REFUSED = {
    "sweeps.db": "--storage is 'sweeps.db', which is not a database URL; give sqlite:///FILE or postgresql://",
    "postgresql://host:port/x": "--storage is 'postgresql://host:port/x', which is not a database URL",
    "mysql://host/x": "--storage names a database of the kind 'mysql', which is not supported; give sqlite://",
    "sqlite://": "--storage is 'sqlite://', which stores nothing on disk; give sqlite:///FILE",
    "sqlite:///:memory:": "--storage is 'sqlite:///:memory:', which stores nothing on disk; give sqlite:///FILE",
}


@pytest.mark.parametrize(("text", "line"), REFUSED.items())
def test_what_is_no_database_to_share_is_refused(text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        understood(text)
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_a_server_is_reached_by_one_driver_and_shown_without_its_password(scheme: str) -> None:
    url = understood(f"{scheme}://ada:secret@host:7/x?sslmode=require")
    assert str(url) == "postgresql+psycopg://ada:***@host:7/x?sslmode=require"


@pytest.mark.parametrize("name", ["what? {0} #1%20.db", "trials.db"])
def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    with database(f"sqlite:///{quote(str(tmp_path / name))}") as storage:
        assert storage
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_server_that_is_not_there_is_one_line_and_so_is_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(DatabaseError) as caught, database("postgresql://127.0.0.1:1/x"):
        pass
    said = str(caught.value)
    assert said.startswith("cannot use the database postgresql+psycopg://127.0.0.1:1/x: connection")
    assert "\n" not in said
    monkeypatch.setitem(sys.modules, "psycopg", None)
    install = r"run pip install 'dynatui\[postgres\]'"
    with pytest.raises(DatabaseError, match=install), database("postgresql://127.0.0.1:1/x"):
        pass


@pytest.mark.slow
@pytest.mark.skipif(binaries() is None, reason="there is no PostgreSQL server here: apt-get install postgresql")
def test_trials_are_kept_by_a_server() -> None:
    pytest.importorskip("psycopg", reason="there is no driver for PostgreSQL: pip install 'dynatui[postgres]'")
    with new_database() as url:
        for _ in range(2):
            with database(url) as storage:
                assert storage
                if not storage.get_all_studies():
                    storage.create_new_study([StudyDirection.MAXIMIZE], "mine")
                assert [study.study_name for study in storage.get_all_studies()] == ["mine"]
