"""Data sets by name: their files, the authors' rules that make prompts of rows, and refused names and files."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from decoder.errors import ConfigError, PromptError
from dynatui.lab.bench.data_sets import prompts
from dynatui.lab.bench.data_sets.prompts import OPENING, SHORTEST, TextSet, openings, paragraphs, text_sets
from dynatui.lab.bench.data_sets.sources import TASKS, HubFiles
from tests.lab.bench.data_sets.makers import BOOK, ROWS, parquet, questions, written


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

    monkeypatch.setattr(prompts, "local_files", downloaded)
    assert one(name, None, 1).prompts[0][:5] == one(name, folder, 1).prompts[0][:5]
    assert request == [{"wikitext": prompts.WIKITEXT_ON_HUB, "pg19": prompts.PG19_ON_HUB}[name]]


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
