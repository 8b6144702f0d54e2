"""Runs a PostgreSQL server for one test, in a temporary folder and on a socket there, and stops it afterwards.

PostgreSQL's programs refuse to run as root, so tests that run as root start them as another user, who owns the folder.
"""

import getpass
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

OTHER_USERS = ("postgres", "nobody")
"""Users that run the server if the test runs as root; the first one that exists is used."""


@dataclass(frozen=True)
class Server:
    """Programs, folder and user of a server."""

    binaries: Path
    folder: Path
    user: str

    @property
    def url(self) -> str:
        """URL of the default database."""
        return self._url("postgres")

    def new_database(self, name: str) -> str:
        """Creates an empty database and returns its URL."""
        self._run("createdb", "-h", str(self.folder), "-U", self.user, name)
        return self._url(name)

    def start(self) -> None:
        """Starts the server on its socket only, without a network port."""
        self._control("start", "-w", "-l", str(self.folder / "log"), "-o", f"-k {self.folder} -h ''")

    def stop(self) -> None:
        self._control("stop", "-m", "immediate")

    def make(self) -> None:
        self._run("initdb", "-D", self._data, "-U", self.user, "-A", "trust", "--no-sync")

    @property
    def running(self) -> bool:
        return (self.folder / "data" / "postmaster.pid").exists()

    def _control(self, action: str, *how: str) -> None:
        self._run("pg_ctl", action, "-D", self._data, *how)

    def _url(self, database: str) -> str:
        return f"postgresql+psycopg://{self.user}@/{database}?host={self.folder}"

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self.binaries / program), *arguments],
            check=True,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=self.user if os.geteuid() == 0 else None,
        )


def binaries() -> Path | None:
    """Folder of the server's programs; None if PostgreSQL is not installed."""
    on_path = shutil.which("pg_ctl")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    found = Path(on_path).resolve() if on_path else debian[-1] if debian else None
    return found.parent if found else None


@contextmanager
def served() -> Iterator[Server]:
    """A running server with an empty database."""
    where = binaries()
    assert where is not None
    # Not in pytest's temporary folder: other users cannot enter it, and the path of a socket must be short.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    server = Server(where, folder, _user())
    if os.geteuid() == 0:
        shutil.chown(folder, server.user)
    try:
        server.make()
        server.start()
        yield server
    finally:
        if server.running:
            server.stop()
        shutil.rmtree(folder)


def _user() -> str:
    if os.geteuid() != 0:
        return getpass.getuser()
    there = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in OTHER_USERS if name in there)
