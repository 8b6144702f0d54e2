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
    binaries: Path
    folder: Path
    user: str

    def new_database(self, name: str) -> str:
        self.run("createdb", "-h", str(self.folder), "-U", self.user, name)
        return f"postgresql+psycopg://{self.user}@/{name}?host={self.folder}"

    def run(self, program: str, *arguments: str) -> None:
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
    where = binaries()
    assert where is not None
    # Not in pytest's temporary folder: other users cannot enter it, and the path of a socket must be short.
    folder, user = Path(tempfile.mkdtemp(prefix="pg-")), getpass.getuser()
    if os.geteuid() == 0:
        user = next(name for name in OTHER_USERS if name in {entry.pw_name for entry in pwd.getpwall()})
        shutil.chown(folder, user)
    server, data = Server(where, folder, user), str(folder / "data")
    try:
        server.run("initdb", "-D", data, "-U", user, "-A", "trust", "--no-sync")
        # On its socket only, without a network port.
        server.run("pg_ctl", "start", "-D", data, "-w", "-l", str(folder / "log"), "-o", f"-k {folder} -h ''")
        yield server
    finally:
        if Path(data, "postmaster.pid").exists():
            server.run("pg_ctl", "stop", "-D", data, "-m", "immediate")
        shutil.rmtree(folder)
