"""Data sets by name: the authors' rules that make prompts of rows, and files from a folder or from the hub, once. Each
failure is one line with a remedy.
"""

import errno
import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars

from decoder.errors import ConfigError, PromptError
from dynatui.lab.bench import data_sets
from dynatui.lab.bench.data_sets import (
    OPENING,
    SHORTEST,
    TASKS,
    HubFiles,
    TextSet,
    column,
    first_turns,
    local_files,
    of_task,
    openings,
    paragraphs,
    text_sets,
)
from tests.lab.bench.data_sets.fake_hub import Hub, serving
from tests.lab.bench.data_sets.makers import BOOK, ROWS, heard, parquet, questions, written


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files of every data set."""
    written(tmp_path / "wikitext2" / "valid_v1_tokens.txt", "".join(ROWS).encode())
    written(tmp_path / "books_test" / "b.txt", f"\ufeffSecond. {BOOK}".encode())
    written(tmp_path / "books_test" / "a.txt", f"First. {BOOK}".encode())
    written(tmp_path / "pg19" / "a.parquet", parquet({"text": ["short", BOOK, f"Other. {BOOK}"]}))
    written(tmp_path / "spec_bench" / "question.jsonl", questions(*TASKS))
    return tmp_path


def one(name: str, folder: Path | None, count: int = 10) -> TextSet:
    (found,) = text_sets([name], folder=folder, prompts=count)
    return found


def test_wikitext_has_its_paragraphs_and_stands_for_the_paper_s(folder: Path) -> None:
    found = one("wikitext", folder)
    assert [prompt[:12] for prompt in found.prompts] == ["It is blue .", "It is fast ."]
    assert found.stands_for == "WikiText-2"
    assert len(one("wikitext", folder, 1).prompts) == 1


def test_a_data_set_is_the_same_as_the_hub_lays_it_out(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    as_on_hub = [row if row.strip() else "" for row in ROWS]
    written(other / "wikitext-2-v1" / "validation-00000-of-00001.parquet", parquet({"text": as_on_hub}))
    written(other / "pg19" / "data" / "test-00000.parquet", (folder / "pg19" / "a.parquet").read_bytes())
    for name in ("wikitext", "pg19"):
        assert one(name, other) == one(name, folder)


def test_books_are_openings_in_the_order_of_their_files_and_named_for_what_they_are(folder: Path) -> None:
    (folder / "books_test" / "c.txt").mkdir()
    found = one("books", folder)
    assert found.prompts == (f"First. {BOOK}"[:OPENING], f"Second. {BOOK}"[:OPENING])
    assert found.title.startswith("PG-19-style")
    assert found.stands_for == "PG-19"


def test_pg19_has_openings_of_its_long_texts_and_no_more_files_are_read_than_prompts_need(folder: Path) -> None:
    assert one("pg19", folder).prompts == (BOOK[:OPENING], f"Other. {BOOK}"[:OPENING])
    written(folder / "pg19" / "b.parquet", b"damaged")
    assert len(one("pg19", folder, 2).prompts) == 2
    with pytest.raises(PromptError, match=r"b\.parquet"):
        one("pg19", folder, 3)


def test_spec_bench_is_all_its_tasks_and_each_is_a_data_set(folder: Path) -> None:
    task = one("spec_bench/coding", folder)
    assert (task.name, task.stands_for, task.prompts) == ("spec_bench/coding", None, ("coding 4",))
    found = text_sets(["spec_bench/math", "spec_bench"], folder=folder, prompts=1)
    assert [each.name for each in found] == ["spec_bench/math", *(f"spec_bench/{t}" for t in TASKS if t != "math")]


@pytest.mark.parametrize("name", ["wikitext", "pg19"])
def test_without_a_folder_files_come_from_the_hub(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request: list[HubFiles] = []

    def downloaded(files: HubFiles) -> list[Path]:
        request.append(files)
        return [written(tmp_path / "x.parquet", parquet({"text": [*ROWS, *ROWS] if name == "wikitext" else [BOOK]}))]

    monkeypatch.setattr(data_sets, "local_files", downloaded)
    assert one(name, None, 1).prompts[0][:5] == one(name, folder, 1).prompts[0][:5]
    assert request == [{"wikitext": data_sets.WIKITEXT_ON_HUB, "pg19": data_sets.PG19_ON_HUB}[name]]


@pytest.mark.parametrize(("name", "place"), [("books", "books_test/"), ("spec_bench/qa", "spec_bench/question.jsonl")])
def test_what_the_hub_does_not_have_needs_a_folder(name: str, place: str) -> None:
    with pytest.raises(PromptError, match=f"{name} can only be read from a folder; set --data to a folder .*{place}"):
        one(name, None)


def test_what_is_not_in_the_catalogue_is_refused(tmp_path: Path) -> None:
    why = "there is no data set 'wikitxt'; choose from wikitext, books, pg19, spec_bench, spec_bench/"
    with pytest.raises(ConfigError, match=why):
        text_sets(["wikitext", "wikitxt"], folder=tmp_path, prompts=1)


@pytest.mark.parametrize("name", ["wikitext", "books", "pg19", "spec_bench/qa"])
def test_a_folder_without_the_data_set_says_what_it_lacks(name: str, tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=f"is empty, so {name} cannot be read; set --data to another folder"):
        one(name, tmp_path)
    written(tmp_path / "letter", b"Dear reader")
    with pytest.raises(PromptError, match=f"has no .*(txt|parquet|jsonl), so {name} cannot be read; set --data to "):
        one(name, tmp_path)
    for folder, why in (("none", "No such file or directory"), ("letter", "letter: Not a directory")):
        with pytest.raises(PromptError, match=f"{why}; set --data to a folder that holds "):
            one(name, tmp_path / folder)


def test_a_text_that_is_no_utf8_is_named(folder: Path) -> None:
    written(folder / "books_test" / "b.txt", b"caf\xe9" * 100)
    with pytest.raises(PromptError, match=r"b.txt is not UTF-8 text \(byte 4\); convert it"):
        one("books", folder)


@pytest.mark.parametrize("method", ["iterdir", "read_text"])
def test_what_may_not_be_read_is_named(method: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = getattr(Path, method)

    def refuse(path: Path, *args: object, **settings: object) -> object:
        if path != folder:
            raise PermissionError(13, "Permission denied", str(path))
        return allowed(path, *args, **settings)

    monkeypatch.setattr(Path, method, refuse)
    with pytest.raises(PromptError, match=r"cannot read .*books_test.*: Permission denied; set --data to another"):
        one("books", folder)


def test_a_file_without_a_long_text_has_no_prompt(folder: Path) -> None:
    written(folder / "wikitext2" / "valid_v1_tokens.txt", b" = Lobster = \n It is blue . \n \n")
    with pytest.raises(PromptError, match=r"valid_v1_tokens\.txt has no text that could be a prompt of wikitext; set"):
        one("wikitext", folder)


@pytest.mark.shared
def test_all_data_sets_of_the_shared_folder_have_prompts_and_wikitext_those_of_the_paper() -> None:
    if not (place := os.environ.get("DYNATUI_DATA")):
        pytest.skip("DYNATUI_DATA names no folder")
    shared = Path(place)
    found = text_sets(["wikitext", "books", "spec_bench"], folder=shared, prompts=10)
    assert [len(each.prompts) for each in found] == [10] * 15
    assert all(prompt.strip() for each in found for prompt in each.prompts)
    paper = json.loads((shared / "wikitext2" / "paper_prompts_valid_v1_L800.json").read_text(encoding="utf-8"))
    assert [prompt[:800] for prompt in found[0].prompts] == paper


LONG = "x" * SHORTEST


def test_no_more_rows_are_read_than_prompts_need() -> None:
    def rows() -> Iterator[str]:
        yield from (LONG, "")
        pytest.fail("a further row was read")

    assert next(paragraphs(rows())) == LONG


@pytest.mark.parametrize(
    ("rule", "rows", "found"),
    [
        pytest.param(paragraphs, [" \n", f" {LONG} \n", " b \n", " \n"], [f"{LONG} \n  b"], id="rows are joined"),
        pytest.param(
            paragraphs,
            [f" {LONG} \n", " = = Part = = \n", f" {LONG}y \n"],
            [LONG, f"{LONG}y"],
            id="a heading ends a paragraph",
        ),
        pytest.param(
            paragraphs,
            [" a \n", " \n", " = B = \n", f" {LONG} \n", "\n", " rest \n"],
            [f"a \n  {LONG}"],
            id="a short paragraph waits for the next",
        ),
        pytest.param(paragraphs, [LONG], [LONG], id="what ends without a blank row"),
        pytest.param(openings, [f"\n\n {'y' * OPENING}z"], ["y" * OPENING], id="how a book begins"),
        pytest.param(openings, ["x" * (SHORTEST - 1), " " * OPENING, LONG], [LONG], id="short books are left out"),
    ],
)
def test_rows_become_prompts_by_the_authors_rules(
    rule: Callable[[list[str]], Iterator[str]], rows: list[str], found: list[str]
) -> None:
    assert list(rule(rows)) == found


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
        from dynatui.lab.bench.data_sets import text_sets
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
        (parquet({"title": ["a"], "year": [1]}), r"has no column text of texts, only title \(string\), year \(int64\)"),
        (parquet({"text": [1, 2]}), r"has no column text of texts, only text \(int64\); set --data to another folder"),
    ],
)
def test_a_file_that_holds_no_such_column_is_one_line(content: bytes, why: str, tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=why) as refused:
        list(column(written(tmp_path / "a.parquet", content)))
    assert "\n" not in str(refused.value)
    assert "a.parquet" in str(refused.value)


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
