"""Databases in which sweeps are kept."""

from collections.abc import Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest

from tests.lab.bench.sweep.sweeps import sqlite_in
from tests.postgres import Server, binaries, served

NUMBERS = count()


@pytest.fixture
def server() -> Iterator[Server]:
    """A PostgreSQL server for one test, which may stop the server."""
    _skip_without_server()
    with served() as found:
        yield found


@pytest.fixture(scope="session")
def common_server() -> Iterator[Server]:
    """A PostgreSQL server shared by the tests, which must not stop it."""
    _skip_without_server()
    with served() as found:
        yield found


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, once for each kind of database."""
    if request.param == "sqlite":
        return sqlite_in(tmp_path)
    found: Server = request.getfixturevalue("common_server")
    return found.new_database(f"sweep{next(NUMBERS)}")


def _skip_without_server() -> None:
    if binaries() is None:
        pytest.skip("there is no PostgreSQL server here: apt-get install postgresql")
    if find_spec("psycopg") is None:
        pytest.skip("there is no driver for PostgreSQL here: pip install 'dynatui[postgres]'")
