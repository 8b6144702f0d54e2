"""Databases: which are taken, what is said of those that cannot be used, and transactions that are whole or nothing."""

import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

import optuna
import pytest

from decoder.bench.sweep.database import alone, of_file, opened, read_only, shown, understood
from decoder.errors import ConfigError, DatabaseError
from tests.decoder.bench.sweep.sweeps import sqlite_in


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("sweeps.db", "--storage is 'sweeps.db', which is no database URL; give sqlite:///FILE or postgresql://"),
        ("postgresql://host:port/x", "--storage is 'postgresql://host:port/x', which is no database URL"),
        ("mysql://host/x", "--storage is a database of 'mysql'; give sqlite:///FILE or postgresql://"),
        ("sqlite://", "--storage is 'sqlite://', which keeps nothing; give sqlite:///FILE"),
        ("sqlite:///:memory:", "--storage is 'sqlite:///:memory:', which keeps nothing; give sqlite:///FILE"),
    ],
)
def test_what_is_no_database_to_share_is_refused(text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        understood(text)
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize("text", ["postgres://ada:secret@host/x", "postgresql://ada:secret@host/x"])
def test_a_server_is_reached_by_one_driver_and_shown_without_its_password(text: str) -> None:
    url = understood(text)
    assert url.drivername == "postgresql+psycopg"
    assert shown(url) == "postgresql+psycopg://ada:***@host/x"


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    path = tmp_path / "what? {0} #1%20.db"
    with opened(understood(of_file(path)), 1, 2):
        pass
    assert path.exists()


def test_a_server_that_is_not_there_is_one_line() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(DatabaseError) as caught, opened(understood("postgresql://127.0.0.1:1/x"), 1, 2):
        pass
    said = str(caught.value)
    assert said.startswith("cannot use the database postgresql+psycopg://127.0.0.1:1/x: connection failed")
    assert "\n" not in said
    assert "sqlalche.me" not in said


def test_without_a_driver_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with (
        pytest.raises(DatabaseError, match="run pip install 'dynatui\\[postgres\\]'"),
        opened(understood("postgresql://127.0.0.1:1/x"), 1, 2),
    ):
        pass


def test_a_file_of_something_else_is_one_line_and_stays_as_it_is(tmp_path: Path) -> None:
    letter = tmp_path / "sweeps.db"
    letter.write_text("Dear reader, " * 100, encoding="utf-8")
    for open_it in (read_only, lambda url: opened(url, 1, 2)):
        with pytest.raises(DatabaseError, match="file is not a database"), open_it(understood(sqlite_in(tmp_path))):
            pass
    assert letter.read_text(encoding="utf-8") == "Dear reader, " * 100


def test_a_folder_that_is_not_there_is_one_line() -> None:
    with (
        pytest.raises(DatabaseError, match="unable to open database file"),
        opened(understood("sqlite:////nonesuch/sweeps.db"), 1, 2),
    ):
        pass


def test_looking_makes_no_database_and_no_tables(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="there is no database"), read_only(understood(sqlite_in(tmp_path))):
        pass
    assert not list(tmp_path.iterdir())
    with sqlite3.connect(tmp_path / "sweeps.db") as other:
        other.execute("CREATE TABLE birds (name TEXT)")
    other.close()
    before = (tmp_path / "sweeps.db").read_bytes()
    with pytest.raises(DatabaseError, match="holds no sweep"), read_only(understood(sqlite_in(tmp_path))):
        pass
    assert (tmp_path / "sweeps.db").read_bytes() == before


def test_tables_of_another_version_are_one_line(tmp_path: Path) -> None:
    with opened(understood(sqlite_in(tmp_path)), 1, 2):
        pass
    with sqlite3.connect(tmp_path / "sweeps.db") as file:
        file.execute("UPDATE alembic_version SET version_num = 'v99.0.0.a'")
    file.close()
    with (
        pytest.raises(DatabaseError, match="is of another version of Optuna: "),
        read_only(understood(sqlite_in(tmp_path))),
    ):
        pass


def test_a_transaction_that_fails_leaves_nothing(database: str) -> None:
    with opened(understood(database), 1, 2) as storage:
        with suppress(ZeroDivisionError), alone(storage):
            optuna.create_study(storage=storage, study_name="half")
            raise ZeroDivisionError
        assert optuna.get_all_study_names(storage) == []


def test_no_transaction_begins_while_another_runs(database: str) -> None:
    order = []
    with opened(understood(database), 1, 2) as one, opened(understood(database), 1, 2) as other:

        def second() -> None:
            with alone(other):
                order.append(f"second sees {optuna.get_all_study_names(other)}")

        thread = threading.Thread(target=second)
        with alone(one):
            thread.start()
            thread.join(0.3)
            assert thread.is_alive()
            optuna.create_study(storage=one, study_name="first")
            order.append("first")
        thread.join()
    assert order == ["first", "second sees ['first']"]


def test_a_full_disk_is_one_line_and_nothing_is_kept(tmp_path: Path) -> None:
    with opened(understood(sqlite_in(tmp_path)), 1, 2) as storage:
        with storage.engine.connect() as connection:  # the pool hands out the same connection again
            connection.exec_driver_sql("PRAGMA max_page_count = 1")
        with pytest.raises(DatabaseError, match="database or disk is full"), alone(storage):
            optuna.create_study(storage=storage, study_name="large").set_user_attr("text", "x" * 100_000)
        assert optuna.get_all_study_names(storage) == []


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with opened(understood(sqlite_in(tmp_path)), 1, 2) as storage:
        with storage.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA query_only = 1")
        with pytest.raises(DatabaseError, match="attempt to write a readonly database"), alone(storage):
            optuna.create_study(storage=storage, study_name="x")
