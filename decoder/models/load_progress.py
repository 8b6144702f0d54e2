"""Progress of loading a model: number of downloaded bytes, and share of weights read."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from decoder.models.names import repository

_EVERY_S = 0.5

Tell = Callable[[str], None]


@contextmanager
def downloading(name: str, tell: Tell) -> Iterator[None]:
    """Calls `tell` with the number of downloaded bytes while a model is downloaded."""
    folders, done = _downloads(name), threading.Event()
    if not folders:
        yield
        return
    watcher = threading.Thread(target=_watch, args=(folders, _bytes(folders), tell, done), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


class Share:
    """Reports the share of a model's weights read so far, at most once in `_EVERY_S` seconds."""

    def __init__(self, total: int, tell: Tell) -> None:
        self._total, self._tell = total, tell
        self._told_s = time.monotonic()

    def reached(self, number: int) -> None:
        if time.monotonic() - self._told_s >= _EVERY_S:
            self._told_s = time.monotonic()
            self._tell(f"{100 * number // self._total} % of its weights")


def _watch(folders: Iterable[Path], first: int, tell: Tell, done: threading.Event) -> None:
    before = first
    while not done.wait(_EVERY_S):
        now = _bytes(folders)
        if now > before:
            tell(f"{(now - first) / 1e6:.0f} MB downloaded")
        before = now


def _downloads(name: str) -> tuple[Path, ...]:
    """Cache folder with complete and partial downloads of a model; empty for a local folder."""
    if Path(name).is_dir():
        return ()
    from huggingface_hub.constants import HF_HUB_CACHE  # noqa: PLC0415 - a folder needs no hub
    from huggingface_hub.file_download import repo_folder_name  # noqa: PLC0415 - as above

    return (Path(HF_HUB_CACHE) / repo_folder_name(repo_id=repository(name), repo_type="model") / "blobs",)


def _bytes(folders: Iterable[Path]) -> int:
    """Total size of all files in the folders; a file that is removed in the meantime does not count."""
    total = 0
    for file in (file for folder in folders for file in folder.glob("*")):
        try:
            total += file.stat().st_size
        except OSError:
            continue
    return total
