"""Files of data sets: from the hub, once; parquet, on demand; Spec-Bench. Each failure is one line with a remedy."""

import errno
import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars

from decoder.errors import PromptError
from dynatui.lab.bench.data_sets.sources import HubFiles, column, first_turns, local_files, of_task
from tests.lab.bench.data_sets.fake_hub import Hub, serving
from tests.lab.bench.data_sets.makers import heard, parquet, questions, written

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


def test_the_files_that_match_are_downloaded_in_order_and_once_and_no_others(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert local_files(HubFiles("someone/books", "data/train-*.parquet"))
    hub.request.clear()
    first = local_files(FILES)
    assert [path.read_bytes() for path in first] == [b"one", b"two"], "the cached file does not stand for these"
    assert not [path for path in hub.request if "train" in path]
    hub.request.clear()
    assert local_files(FILES) == first
    assert not hub.request
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert local_files(FILES) == first


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (403, "GatedRepo", "ask for access on https://huggingface.co/datasets/someone/books and log in with: hf auth"),
        (404, "RepoNotFound", "from the Hugging Face hub: the data set does not exist, or is not"),
        (401, "", "401 Unauthorized"),
        (500, "", "500 Internal"),
        (429, "", "429 Too"),
    ],
)
def test_a_hub_that_refuses_is_quoted_in_one_line_with_a_remedy(hub: Hub, status: int, code: str, said: str) -> None:
    hub.refuses = status, code
    with pytest.raises(PromptError) as fault:
        local_files(FILES)
    line = str(fault.value)
    assert line.startswith("cannot download someone/books from the Hugging Face hub: ")
    assert line.endswith("or set --data to a folder of data")
    assert said in line
    assert "\n" not in line


@pytest.mark.usefixtures("hub")
def test_nothing_is_printed_by_a_download(capfd: pytest.CaptureFixture[str]) -> None:
    enable_progress_bars()
    with heard("huggingface_hub") as lines:
        assert local_files(FILES)
    assert not lines
    assert are_progress_bars_disabled()
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("HF_HUB_OFFLINE", True, "HF_HUB_OFFLINE is set, and the cache lacks the data set; unset"),
        ("HF_HUB_CACHE", "/proc/none/hub", "'/proc/none'; set HF_HOME to a folder that can be written"),
    ],
)
def test_what_stands_against_a_download_is_named(
    name: str, value: object, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, name, value)
    with pytest.raises(PromptError, match=why):
        local_files(FILES)


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
        with pytest.raises(PromptError, match="the disk is full; free some space, or set HF_HOME to a folder"):
            local_files(FILES)
    assert [path.read_bytes() for path in local_files(FILES)] == [b"one", b"two"]


@pytest.mark.parametrize("variables", [{"HF_ENDPOINT": CLOSED}, {"HTTPS_PROXY": CLOSED}, {"HF_HUB_OFFLINE": "1"}])
def test_without_a_network_there_is_one_line_at_once_and_nothing_else(
    variables: dict[str, str], tmp_path: Path
) -> None:
    code = """if True:
        from dynatui.lab.bench.data_sets.prompts import text_sets
        from decoder.errors import PromptError
        try:
            text_sets(['wikitext'], folder=None, prompts=1)
        except PromptError as error:
            print(error)
    """
    began, env = time.monotonic(), {**os.environ, "HF_HOME": str(tmp_path), **variables}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=60)
    assert time.monotonic() - began < 20
    assert done.stdout.startswith("cannot download Salesforce/wikitext from the Hugging Face hub: ")
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


TEXTS = [f"text {at}" for at in range(100)]
GOOD = parquet({"title": ["a", "b"] * 50, "text": TEXTS})


def damaged(content: bytes, at: int) -> bytes:
    return content[:at] + bytes(255 - byte for byte in content[at : at + 40]) + content[at + 40 :]


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (GOOD, TEXTS),
        (parquet({"text": ["a", None, "b"]}), ["a", "b"]),
        (parquet({"text": []}, text="string"), []),
    ],
    ids=["in order", "without empty rows", "without rows"],
)
def test_a_column_is_read_whatever_its_path(content: bytes, texts: list[str], tmp_path: Path) -> None:
    assert list(column(written(tmp_path / "a[1] * b" / "a.parquet", content))) == texts


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (GOOD[: len(GOOD) // 2], "as parquet: Parquet magic bytes not found in footer"),
        (b"", "as parquet: Parquet file size is 0 bytes"),
        (b"Call me Ishmael.", "as parquet: Parquet magic bytes not found"),
        (damaged(GOOD, 60), "as parquet: "),
        (damaged(GOOD, len(GOOD) - 100), "as parquet: "),
        (parquet({"title": ["a"], "year": [1]}), "has no column text, only title, year"),
        (parquet({"text": [1, 2]}), "the column text of .* holds int64, not text; set --data to another folder"),
    ],
)
def test_a_file_that_holds_no_such_column_is_one_line(content: bytes, why: str, tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=why) as refused:
        list(column(written(tmp_path / "a.parquet", content)))
    assert "\n" not in str(refused.value)
    assert "a.parquet" in str(refused.value)


def test_a_file_that_is_gone_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=r"No such file or directory.*; check its permissions$"):
        list(column(tmp_path / "a.parquet"))


def test_prompts_are_first_turns_by_task_in_the_file_s_order(tmp_path: Path) -> None:
    path = written(tmp_path / "question.jsonl", questions("math", "coding", "math") + b"\n")
    assert first_turns(path) == {"math": ["math 0", "math 2"], "coding": ["coding 1"]}
    assert list(of_task("math", path)) == ["math 0", "math 2"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (questions("math") + b"no json", "question.jsonl holds no questions of Spec-Bench: "),
        (b'{"category": "math"}', "holds no questions of Spec-Bench: Object missing required field `turns`"),
        (b'{"category": "", "turns": ["x"]}', "Expected `str` of length >= 1 - at `$[0].category`"),
        (b'{"category": "math", "turns": []}', "Expected `array` of length >= 1 - at `$[0].turns`"),
        (b'{"category": "\xff", "turns": []}', "question.jsonl holds no questions of Spec-Bench: "),
        (b'{"x": ' + b"[" * 100_000, "question.jsonl holds no questions of Spec-Bench: maximum recursion depth"),
        (b"\n", "question.jsonl is empty; set --data to another folder"),
        (questions("math", "qa"), "question.jsonl has no task coding, only math, qa"),
    ],
)
def test_what_is_not_its_file_is_one_line(content: bytes, why: str, tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=re.escape(why)):
        list(of_task("coding", written(tmp_path / "question.jsonl", content)))
