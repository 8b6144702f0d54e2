"""Folders in the form of huggingface_hub's cache."""

import shutil
from pathlib import Path

from tests.lab.bench.data_sets.fake_hub import COMMIT


def cached(cache: Path, name: str, folder: Path) -> Path:
    """Puts the files of a folder into the cache, as a model on the hub; returns their folder there."""
    model = cache / f"models--{name.replace('/', '--')}"
    place = model / "snapshots" / COMMIT
    shutil.copytree(folder, place)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    return place
