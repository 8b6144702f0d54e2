"""How far a model has come on its way into memory: what is downloaded, which weights are read."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub.constants import HF_HUB_CACHE
from huggingface_hub.file_download import repo_folder_name
from transformers.utils import logging as transformers_logging

_EVERY_S = 0.5

Tell = Callable[[str], None]


@contextmanager
def reading(name: str, tell: Tell) -> Iterator[None]:
    """Within, `tell` learns how much of a model is downloaded, if it must be, and then how many weights are read."""

    def counted(bar: Callable[..., Any], given: tuple[Any, ...], options: dict[str, Any]) -> Any:
        items, *others = given or (None,)
        return bar(_counted(items, tell) if isinstance(items, Sized) else items, *others, **options)

    before = transformers_logging.set_tqdm_hook(counted)
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(_downloads(name), tell, done), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        transformers_logging.set_tqdm_hook(before)


def _counted(items: Any, tell: Tell) -> Iterator[Any]:
    """The items, with their share of all told every now and then."""
    told_s = time.monotonic()
    for number, item in enumerate(items):
        if time.monotonic() - told_s >= _EVERY_S:
            told_s = time.monotonic()
            tell(f"{100 * number // len(items)} % of its weights")
        yield item


def _watch(folders: Iterable[Path], tell: Tell, done: threading.Event) -> None:
    """Tells how much a download has brought, while it grows."""
    first = before = _bytes(folders)
    while not done.wait(_EVERY_S):
        now = _bytes(folders)
        if now > before:
            tell(f"{(now - first) / 1e6:.0f} MB downloaded")
        before = now


def _downloads(name: str) -> tuple[Path, ...]:
    """Where the hub's client puts what it has of a model, and what it has not yet all of; for a folder, nowhere."""
    if Path(name).is_dir():
        return ()
    return (Path(HF_HUB_CACHE) / repo_folder_name(repo_id=name, repo_type="model") / "blobs",)


def _bytes(folders: Iterable[Path]) -> int:
    """Bytes of all files in some folders; of those that go meanwhile, none."""
    total = 0
    for file in (file for folder in folders for file in folder.glob("*")):
        try:
            total += file.stat().st_size
        except OSError:
            continue
    return total
