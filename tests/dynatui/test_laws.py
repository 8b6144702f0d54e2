"""Tests of the long run of statistical laws: it saves after each block, continues after a stop, and reports results."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks import laws
from decoder.errors import ConfigError
from tests.decoder.laws.case import Case, Group, Verdict
from tests.decoder.laws.cases import GROUPS


class Counting:
    def __init__(self, *, right: bool = True, setting: str = "usual") -> None:
        self.asked: list[int] = []
        self.stop_at: int | None = None
        self.error: BaseException = KeyboardInterrupt()
        self._right, self._setting = right, setting

    def count(self, units: range) -> Counter[str]:
        if self.stop_at in units:
            raise self.error
        self.asked += units
        return Counter({"seen": len(units)})

    def judge(self, counts: Mapping[str, float]) -> Verdict:
        return Verdict(self._right, (f"{counts['seen']:.0f}", "as it should be" if self._right else "otherwise"))

    def group(self, title: str = "Kind") -> Group:
        case = Case("a case", self._setting, 10, 3, self.count, self.judge)
        return Group(title, "What it is.", ("case", "seen", "verdict"), (case,))


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(laws, "say", lines.append)
    return lines


def run(output: Path, *groups: Group, only: str = "") -> int:
    return laws.main(["run", "--output", str(output), "--only", only], groups)


def report(output: Path, *groups: Group) -> int:
    return laws.main(["report", "--output", str(output)], groups)


def stopped(output: Path, at: int) -> Counting:
    """A case whose run was stopped at a unit, and which can go on now."""
    own = Counting()
    own.stop_at = at
    with pytest.raises(KeyboardInterrupt):
        run(output, own.group())
    own.stop_at = None
    return own


@pytest.mark.parametrize("half_written", [False, True])
def test_a_run_that_was_stopped_goes_on_within_the_case_and_does_nothing_twice(
    tmp_path: Path, said: list[str], *, half_written: bool
) -> None:
    own = stopped(tmp_path, 7)
    if half_written:
        (kept,) = tmp_path.iterdir()
        kept.with_suffix(".new").write_text("{", encoding="utf-8")
    assert report(tmp_path, own.group()) == 1
    assert "| a case | 6 of 10 done |  |" in said[-1]
    assert "0 of 1 cases are done" in said[-1]
    assert [run(tmp_path, own.group()) for _ in range(2)] == [0, 0]
    assert own.asked == list(range(10))
    assert said[-2:] == ["Kind: a case: 10, as it should be"] * 2
    assert report(tmp_path, own.group()) == 0


def test_counts_of_another_setting_are_not_gone_on_with(tmp_path: Path, said: list[str]) -> None:
    run(tmp_path, Counting(setting="before").group())
    own = Counting(setting="now")
    assert report(tmp_path, own.group()) == 1
    assert "| a case | 0 of 10 done |  |" in said[-1]
    run(tmp_path, own.group())
    assert own.asked == list(range(10))


def test_the_report_names_what_is_not_as_it_should_be(tmp_path: Path, said: list[str]) -> None:
    right, wrong = Counting().group(), Counting(right=False).group("Other")
    assert run(tmp_path, right, wrong) == 1
    assert said[-1].endswith("WRONG")
    assert report(tmp_path, right, wrong) == 1
    rows = ("| a case | 10 | as it should be |", "| a case | 10 | **otherwise** |")
    assert all(row in said[-1] for row in (*rows, "2 of 2 cases are done; 1 of these pass."))


def test_cases_are_chosen_by_a_part_of_their_names(tmp_path: Path, said: list[str]) -> None:
    one, other = Counting(), Counting()
    assert run(tmp_path, one.group(), other.group("Other"), only="Other:") == 0
    assert (len(one.asked), len(other.asked)) == (0, 10)
    assert said == ["Other: a case: 10, as it should be"]


def test_what_lacks_its_data_ends_in_one_line(tmp_path: Path, said: list[str]) -> None:
    own = Counting()
    own.stop_at, own.error = 0, ConfigError("no books; give some")
    assert run(tmp_path, own.group()) == 2
    assert said == ["laws.py: no books; give some"]


def test_files_of_all_cases_differ(tmp_path: Path) -> None:
    cases = [(group, case) for group in GROUPS for case in group.cases]
    assert len({laws.file_of(group, case, tmp_path) for group, case in cases}) == len(cases)
