"""Progress reports while a model is downloaded and loaded."""

import threading
from pathlib import Path

import pytest

from decoder import load_pair
from decoder.models import load_progress as reading
from tests.decoder.makers import TinyModels

HUB_ID = "owner/model"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_EVERY_S", 0.0)


def test_the_share_of_the_weights_is_told_for_each_model(tiny_models: TinyModels) -> None:
    told: list[str] = []
    pair = tiny_models.pair("neox")
    load_pair(
        str(pair.target),
        str(pair.draft),
        device="cpu",
        dtype="float32",
        report=lambda step: told.append(step.split()[0]),
        progress=told.append,
    )
    first = told.index("loading")
    second = told.index("loading", first + 1)
    for shares in (told[first + 1 : second], told[second + 1 :]):
        percent = [int(share.removesuffix(" % of its weights")) for share in shares]
        assert percent == sorted(percent)
        assert percent[0] == 0
        assert percent[-1] > 80


def test_a_download_is_told_by_what_has_come_since_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_EVERY_S", 0.01)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    blobs = tmp_path / "models--owner--model" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "earlier").write_bytes(bytes(7_000_000))
    told, heard = list[str](), threading.Event()

    def tell(progress: str) -> None:
        told.append(progress)
        heard.set()

    with reading.downloading(HUB_ID, tell):
        for size in (3_000_000, 5_000_000):
            heard.clear()
            (tmp_path / "written").write_bytes(bytes(size))
            (tmp_path / "written").replace(blobs / "abc.incomplete")  # in one step, so that no partial size is reported
            assert heard.wait(10)
    assert told[-1] == "5 MB downloaded"


def test_a_folder_is_no_download(tmp_path: Path) -> None:
    assert reading._downloads(str(tmp_path)) == ()


def test_bars_are_as_before_when_it_is_over() -> None:
    from transformers.utils import logging  # noqa: PLC0415 - only this test needs it

    with pytest.raises(RuntimeError), reading.downloading(HUB_ID, print):
        raise RuntimeError
    assert logging._tqdm_hook is None
