"""A server in which a search keeps its trials."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.postgres import Server, binaries, served


@pytest.fixture(scope="session")
def common_server() -> Iterator[Server]:
    """A PostgreSQL server shared by the tests, which must not stop it."""
    _skip_without_server()
    with served() as found:
        yield found


def _skip_without_server() -> None:
    if binaries() is None:
        pytest.skip("there is no PostgreSQL server here: apt-get install postgresql")
    if find_spec("psycopg") is None:
        pytest.skip("there is no driver for PostgreSQL here: pip install 'dynatui[postgres]'")
