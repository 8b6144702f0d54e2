"""Files from the hub: each is downloaded once, and each failure is one line with a remedy."""

import errno
import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars

from decoder.errors import PromptError
from dynatui.lab.bench.data_sets.sources import HubFiles, local_files
from tests.lab.bench.data_sets.fake_hub import Hub, serving
from tests.lab.bench.data_sets.makers import heard

FILES = HubFiles("someone/books", "data/test-*.parquet")
HELD = {
    "someone/books/README.md": b"Books.",
    "someone/books/data/test-00001.parquet": b"two",
    "someone/books/data/test-00000.parquet": b"one",
    "someone/books/data/train-00000.parquet": b"too large to be downloaded",
}
CLOSED = "http://127.0.0.1:9"
"""Nothing listens at port 9, the discard port."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with serving(Hub(HELD)) as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.endpoint)
        template = f"{served.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield served


def refused(hub: Hub, status: int, code: str) -> str:
    hub.refuses = status, code
    with pytest.raises(PromptError) as fault:
        local_files(FILES)
    assert "\n" not in str(fault.value)
    return str(fault.value)


def test_the_files_that_match_are_downloaded_in_order_and_no_others(hub: Hub) -> None:
    assert [path.read_bytes() for path in local_files(FILES)] == [b"one", b"two"]
    assert not [path for path in hub.request if "train" in path]


@pytest.mark.usefixtures("hub")
def test_nothing_is_printed_by_a_download(capfd: pytest.CaptureFixture[str]) -> None:
    enable_progress_bars()
    with heard("huggingface_hub") as lines:
        assert local_files(FILES)
    assert not lines
    assert are_progress_bars_disabled()
    assert capfd.readouterr() == ("", "")


def test_what_was_downloaded_once_is_not_asked_for_again(hub: Hub) -> None:
    first = local_files(FILES)
    hub.request.clear()
    assert local_files(FILES) == first
    assert not hub.request


@pytest.mark.usefixtures("hub")
def test_what_was_downloaded_once_is_there_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    first = local_files(FILES)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert local_files(FILES) == first


@pytest.mark.usefixtures("hub")
def test_other_files_of_the_repository_in_the_cache_do_not_stand_for_these() -> None:
    assert local_files(HubFiles("someone/books", "data/train-*.parquet"))
    assert [path.read_bytes() for path in local_files(FILES)] == [b"one", b"two"]


@pytest.mark.usefixtures("hub")
def test_offline_without_a_copy_says_how_it_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(PromptError, match=r"HF_HUB_OFFLINE is set, and the cache lacks the data set; unset"):
        local_files(FILES)


def test_a_gated_repository_says_where_to_ask(hub: Hub) -> None:
    page = "ask for access on https://huggingface.co/datasets/someone/books and log in with: hf auth login"
    assert page in refused(hub, 403, "GatedRepo")


def test_a_missing_repository_is_named(hub: Hub) -> None:
    line = refused(hub, 404, "RepoNotFound")
    assert line.startswith(
        "cannot download someone/books from the Hugging Face hub: the data set does not exist, or is not"
    )
    assert line.endswith("or set --data to a folder of data")


@pytest.mark.parametrize(("status", "reason"), [(401, "401 Unauthorized"), (500, "500 Internal"), (429, "429 Too")])
def test_a_hub_that_fails_is_quoted(hub: Hub, status: int, reason: str) -> None:
    assert reason in refused(hub, status, "")


def test_files_that_have_moved_are_named(hub: Hub) -> None:
    hub.files = {"someone/books/README.md": b"Moved."}
    with pytest.raises(PromptError, match=r"someone/books on the Hugging Face hub no longer has data/test-\*.parquet"):
        local_files(FILES)


@pytest.mark.usefixtures("hub")
def test_a_full_disk_leaves_no_file_behind_that_a_later_run_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.FileIO):
        def write(self, _: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    opened = Path.open

    def open_full(path: Path, mode: str = "r", *args: object, **settings: object) -> object:
        return Full(path, mode) if "incomplete" in path.name else opened(path, mode, *args, **settings)  # type: ignore[call-overload]

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", open_full)
        with pytest.raises(PromptError, match="the disk is full; make room, or set HF_HOME to a folder on another"):
            local_files(FILES)
    assert [path.read_bytes() for path in local_files(FILES)] == [b"one", b"two"]


@pytest.mark.usefixtures("hub")
def test_a_cache_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", "/proc/none/hub")
    with pytest.raises(PromptError, match="'/proc/none'; set HF_HOME to a folder that can be written"):
        local_files(FILES)


@pytest.mark.parametrize("variables", [{"HF_ENDPOINT": CLOSED}, {"HTTPS_PROXY": CLOSED}, {"HF_HUB_OFFLINE": "1"}])
def test_without_a_network_there_is_one_line_at_once_and_nothing_else(
    variables: dict[str, str], tmp_path: Path
) -> None:
    code = """if True:
        from dynatui.lab.bench.data_sets.prompts import text_sets
        from decoder.errors import PromptError
        try:
            text_sets(["wikitext"], folder=None, prompts=1)
        except PromptError as error:
            print(error)
    """
    header = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HF_HOME": str(tmp_path), **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert time.monotonic() - header < 20
    assert done.stdout.startswith("cannot download Salesforce/wikitext from the Hugging Face hub: ")
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
