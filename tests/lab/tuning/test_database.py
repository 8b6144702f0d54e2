"""Databases of trials: accepted URLs, and errors for unusable ones."""

import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from optuna.study import StudyDirection

from decoder.errors import ConfigError, DatabaseError
from dynatui.lab.tuning.database import opened, shown, understood
from tests.postgres import Server


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("sweeps.db", "--storage is 'sweeps.db', which is not a database URL; give sqlite:///FILE or postgresql://"),
        ("postgresql://host:port/x", "--storage is 'postgresql://host:port/x', which is not a database URL"),
        ("mysql://host/x", "--storage names a database of the kind 'mysql', which is not supported; give sqlite://"),
        ("sqlite://", "--storage is 'sqlite://', which stores nothing on disk; give sqlite:///FILE"),
        ("sqlite:///:memory:", "--storage is 'sqlite:///:memory:', which stores nothing on disk; give sqlite:///FILE"),
    ],
)
def test_what_is_no_database_to_share_is_refused(text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        understood(text)
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize("text", ["postgres://ada:secret@host/x", "postgresql://ada:secret@host/x"])
def test_a_server_is_reached_by_one_driver_and_shown_without_its_password(text: str) -> None:
    assert understood(text) == "postgresql+psycopg://ada:secret@host/x"
    assert shown(understood(text)) == "postgresql+psycopg://ada:***@host/x"


@pytest.mark.parametrize("text", ["postgresql://ada@host:7/x?sslmode=require", "postgresql://ada@/x?host=/run/a:b@c"])
def test_where_there_is_no_password_all_is_shown(text: str) -> None:
    assert shown(understood(text)) == text.replace("postgresql", "postgresql+psycopg")


@pytest.mark.parametrize("name", ["what? {0} #1%20.db", "trials.db"])
def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    with opened(f"sqlite:///{quote(str(tmp_path / name))}") as storage:
        storage.create_new_study([StudyDirection.MAXIMIZE], "mine")
    assert list(tmp_path.iterdir())


def test_a_server_that_is_not_there_is_one_line() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(DatabaseError) as caught, opened("postgresql://127.0.0.1:1/x"):
        pass
    said = str(caught.value)
    assert said.startswith("cannot use the database postgresql+psycopg://127.0.0.1:1/x: connection")
    assert "\n" not in said


def test_without_a_driver_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with (
        pytest.raises(DatabaseError, match=r"run pip install 'dynatui\[postgres\]'"),
        opened("postgresql://127.0.0.1:1/x"),
    ):
        pass


@pytest.mark.slow
def test_trials_are_kept_by_a_server(common_server: Server) -> None:
    url = common_server.new_database("tuning")
    for _ in range(2):
        with opened(url) as storage:
            if not storage.get_all_studies():
                storage.create_new_study([StudyDirection.MAXIMIZE], "mine")
            assert [study.study_name for study in storage.get_all_studies()] == ["mine"]
