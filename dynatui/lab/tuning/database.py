"""Place of a database of trials: an SQLite file or a PostgreSQL server, from a URL. Knows nothing of what is stored."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from decoder.errors import DatabaseError, first_line, quoted, require, shortened

PATIENCE_S = 30
"""Maximum wait for another process's transaction, in seconds."""
PATIENT = {
    "connect_timeout": 10,
    "options": f"-c lock_timeout={PATIENCE_S}s",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "tcp_user_timeout": 1000 * PATIENCE_S,
}
"""Connection options that bound the wait for a server; without them, a call to a vanished host blocks for minutes."""
EXAMPLES = "sqlite:///FILE or postgresql://USER@HOST/DATABASE"
POSTGRES = "postgresql+psycopg"
_SERVERS = ("postgres", "postgresql", POSTGRES)


@dataclass(frozen=True)
class Database:
    """Database at a file or URL."""

    url: str
    """URL in SQLAlchemy's form."""
    file: Path | None
    """Path of the SQLite file; None for a server."""

    @property
    def shown(self) -> str:
        """URL for messages, without the password."""
        if self.file is not None:
            return shortened(f"sqlite:///{self.file}")
        return shortened(re.sub(r"(?<=//)([^/@]*?:)[^/]*(?=@)", r"\1***", self.url))

    def unusable(self, error: BaseException) -> DatabaseError:
        """Error that names the failure and the remedy."""
        check = "its folder exists, is writable and has space" if self.file else "the server runs and accepts this user"
        return DatabaseError(
            f"cannot use the database {self.shown}: {first_line(error)}; check that {check}, then run the same "
            "command again"
        )


def understood(url: str) -> Database:
    """Database at a URL.

    Raises:
        ConfigError: The URL is invalid, or names another kind of database.
    """
    scheme, _, rest = url.partition("://")
    require(_is_url(url), f"--storage is {quoted(url)}, which is not a database URL; give {EXAMPLES}")
    require(
        scheme in (*_SERVERS, "sqlite"),
        f"--storage names a database of the kind {quoted(scheme)}, which is not supported; give {EXAMPLES}",
    )
    if scheme in _SERVERS:
        return Database(f"{POSTGRES}://{rest}", None)
    name = unquote(rest.partition("?")[0].partition("/")[2])
    require(
        name not in ("", ":memory:"), f"--storage is {quoted(url)}, which stores nothing on disk; give sqlite:///FILE"
    )
    return Database(url, Path(name))


def driver() -> Any:
    """Driver of PostgreSQL; raises DatabaseError if it is not installed."""
    try:
        import psycopg  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise DatabaseError(
            "PostgreSQL needs psycopg, which cannot be imported here; run pip install 'dynatui[postgres]'"
        ) from error
    return psycopg


def _is_url(text: str) -> bool:
    try:
        _ = urlsplit(text).port  # raises ValueError for some invalid URLs
    except ValueError:
        return False
    return "://" in text
