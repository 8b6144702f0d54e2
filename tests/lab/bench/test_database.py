"""Databases: accepted URLs, errors for unusable ones, and atomic transactions."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from decoder.errors import ConfigError, DatabaseError
from dynatui.lab.bench.database import Database, of_file, understood

TABLES = ("CREATE TABLE IF NOT EXISTS birds (name TEXT)",)


def birds_in(database: Database) -> Database:
    """The same database with a table."""
    database.make(TABLES)
    return database


def changed(database: Database, *statements: str) -> None:
    with database.alone() as transaction:
        for statement in statements:
            transaction.change(statement)


def names(database: Database) -> list[str]:
    with database.reading() as transaction:
        return [name for (name,) in transaction.rows("SELECT name FROM birds ORDER BY name")]


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
    url = understood(text)
    assert url.url == "postgresql+psycopg://ada:secret@host/x"
    assert url.shown == "postgresql+psycopg://ada:***@host/x"


@pytest.mark.parametrize("text", ["postgresql://ada@host:7/x?sslmode=require", "postgresql://ada@/x?host=/run/a:b@c"])
def test_where_there_is_no_password_all_is_shown(text: str) -> None:
    assert understood(text).shown == text.replace("postgresql", "postgresql+psycopg")


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    path = tmp_path / "what? {0} #1%20.db"
    birds_in(of_file(path))
    assert path.exists()


def test_a_server_that_is_not_there_is_one_line() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(DatabaseError) as caught:
        birds_in(understood("postgresql://127.0.0.1:1/x"))
    said = str(caught.value)
    assert said.startswith("cannot use the database postgresql+psycopg://127.0.0.1:1/x: connection failed")
    assert "\n" not in said


def test_without_a_driver_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(DatabaseError, match="run pip install 'dynatui\\[postgres\\]'"):
        birds_in(understood("postgresql://127.0.0.1:1/x"))


@pytest.mark.parametrize("use", [birds_in, names])
def test_a_file_of_something_else_is_one_line_and_stays_as_it_is(
    use: Callable[[Database], object], tmp_path: Path
) -> None:
    letter = tmp_path / "letter"
    letter.write_text("Dear reader, " * 100, encoding="utf-8")
    with pytest.raises(DatabaseError, match="file is not a database"):
        use(of_file(letter))
    assert letter.read_text(encoding="utf-8") == "Dear reader, " * 100


def test_a_folder_that_is_not_there_is_one_line() -> None:
    with pytest.raises(DatabaseError, match="unable to open database file"):
        birds_in(understood("sqlite:////nonesuch/sweeps.db"))


def test_a_file_that_was_removed_does_not_come_back_empty(tmp_path: Path) -> None:
    database = birds_in(of_file(tmp_path / "birds.db"))
    (tmp_path / "birds.db").unlink()
    with pytest.raises(DatabaseError, match="unable to open database file"):
        names(database)
    assert not (tmp_path / "birds.db").exists()


def test_a_transaction_that_fails_leaves_nothing(database: str) -> None:
    found = birds_in(understood(database))
    with suppress(ZeroDivisionError), found.alone() as transaction:
        transaction.change("INSERT INTO birds VALUES (?)", "wren")
        raise ZeroDivisionError
    assert names(found) == []


def test_no_transaction_begins_while_another_runs(database: str) -> None:
    found, order = birds_in(understood(database)), []

    def second() -> None:
        with found.alone() as transaction:
            transaction.change("INSERT INTO birds VALUES ('robin')")
            order.append("second")

    thread = threading.Thread(target=second)
    with found.alone() as transaction:
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        transaction.change("INSERT INTO birds VALUES ('wren')")
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert names(found) == ["robin", "wren"]


def test_a_statement_takes_many_values_at_once_and_says_how_many_rows_it_changed(database: str) -> None:
    found = birds_in(understood(database))
    with found.alone() as transaction:
        transaction.change_all("INSERT INTO birds VALUES (?)", [("wren",), ("robin",)])
        assert transaction.change("UPDATE birds SET name = ? WHERE name = ?", "lark", "wren") == 1
        assert transaction.has_table("birds")
        assert not transaction.has_table("bees")
    assert names(found) == ["lark", "robin"]


def test_a_database_tells_the_time(database: str) -> None:
    with birds_in(understood(database)).reading() as transaction:
        assert abs(transaction.now_s() - time.time()) < 60


def test_a_full_disk_is_one_line_and_nothing_is_kept(tmp_path: Path) -> None:
    found = birds_in(of_file(tmp_path / "birds.db"))
    with pytest.raises(DatabaseError, match="database or disk is full"):
        changed(found, "PRAGMA max_page_count = 1", "INSERT INTO birds SELECT hex(zeroblob(100000))")
    assert names(found) == []


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    found = birds_in(of_file(tmp_path / "birds.db"))
    with pytest.raises(DatabaseError, match="attempt to write a readonly database"):
        changed(found, "PRAGMA query_only = 1", "INSERT INTO birds VALUES ('wren')")
