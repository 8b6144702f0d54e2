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
from pathlib import Path

OTHER_USERS = ("postgres", "nobody")
"""Users that run the server if the test runs as root; the first one that exists is used."""


def binaries() -> Path | None:
    """Folder of the server's programs; None if PostgreSQL is not installed."""
    on_path = shutil.which("pg_ctl")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    found = Path(on_path).resolve() if on_path else debian[-1] if debian else None
    return found.parent if found else None


@contextmanager
def new_database() -> Iterator[str]:
    """URL of an empty database on a server of its own."""
    where = binaries()
    assert where is not None
    # Not in pytest's temporary folder: other users cannot enter it, and the path of a socket must be short.
    folder, root, user = Path(tempfile.mkdtemp(prefix="pg-")), os.geteuid() == 0, getpass.getuser()
    if root:
        user = next(name for name in OTHER_USERS if name in {entry.pw_name for entry in pwd.getpwall()})
        shutil.chown(folder, user)
    data, null = str(folder / "data"), subprocess.DEVNULL

    def run(program: str, *arguments: str) -> None:
        command = [str(where / program), *arguments]
        owner = user if root else None
        subprocess.run(command, check=True, cwd=folder, stdin=null, stdout=null, stderr=null, user=owner)

    try:
        run("initdb", "-D", data, "-U", user, "-A", "trust", "--no-sync")
        # On its socket only, without a network port.
        run("pg_ctl", "start", "-D", data, "-w", "-l", str(folder / "log"), "-o", f"-k {folder} -h ''")
        run("createdb", "-h", str(folder), "-U", user, "tuning")
        yield f"postgresql+psycopg://{user}@/tuning?host={folder}"
    finally:
        if Path(data, "postmaster.pid").exists():
            run("pg_ctl", "stop", "-D", data, "-m", "immediate")
        shutil.rmtree(folder)
