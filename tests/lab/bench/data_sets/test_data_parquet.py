"""Reading a column of a parquet file: rows are read on demand, and a damaged file is reported in one line."""

import logging
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from decoder.errors import PromptError
from dynatui.lab.bench.data_sets.sources import column
from tests.lab.bench.data_sets.makers import heard, parquet, written

GOOD = parquet({"title": ["a", "b"] * 50, "text": [f"text {at}" for at in range(100)]})


def damaged(content: bytes, at: int) -> bytes:
    return content[:at] + bytes(255 - byte for byte in content[at : at + 40]) + content[at + 40 :]


def test_a_column_is_read_in_order(tmp_path: Path) -> None:
    assert list(column(written(tmp_path / "a.parquet", GOOD))) == [f"text {at}" for at in range(100)]


def test_rows_without_a_text_are_left_out(tmp_path: Path) -> None:
    assert list(column(written(tmp_path / "a.parquet", parquet({"text": ["a", None, "b"]})))) == ["a", "b"]


def test_a_path_is_no_pattern(tmp_path: Path) -> None:
    path = written(tmp_path / "a[1] * b" / "a.parquet", parquet({"text": ["here"]}))
    assert list(column(path)) == ["here"]


def test_a_file_without_rows_has_no_texts(tmp_path: Path) -> None:
    assert list(column(written(tmp_path / "a.parquet", parquet({"text": []}, text="string")))) == []


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
def test_a_file_that_holds_no_such_column_is_one_line(
    content: bytes, why: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with heard("datasets") as lines, pytest.raises(PromptError, match=why) as refused:
        list(column(written(tmp_path / "a.parquet", content)))
    assert "\n" not in str(refused.value)
    assert "a.parquet" in str(refused.value)
    assert not lines
    assert capfd.readouterr() == ("", "")


def test_the_log_of_the_library_is_as_it_was_after_a_reader_who_stops_early(tmp_path: Path) -> None:
    before = logging.getLogger("datasets").level
    with closing(column(written(tmp_path / "a.parquet", GOOD))) as rows:
        assert next(rows) == "text 0"
    assert logging.getLogger("datasets").level == before


def test_a_missing_folder_for_temporary_files_is_not_blamed_on_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(PromptError, match=r"No such file or directory: .*; check its permissions, and the space in TM"):
        list(column(written(tmp_path / "a.parquet", GOOD)))


def test_a_damaged_file_is_one_line_in_a_process_that_has_read_none_before(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", GOOD[: len(GOOD) // 2])
    code = f"""if True:
        from pathlib import Path
        from dynatui.lab.bench.data_sets.sources import column
        from decoder.errors import PromptError
        try:
            next(column(Path({str(path)!r})))
        except PromptError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("cannot read ")
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
