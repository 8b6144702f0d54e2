"""The program that compares two checkouts must find every difference and nothing else."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import commits

TRACE = Path(__file__).parents[1] / "traces" / "demo.jsonl"
Change = Callable[[dict[str, Any]], None]


def changed(tmp_path: Path, kind: str, method: str, change: Change) -> Path:
    """Writes the recorded trace with one changed event; returns the file's path."""
    lines = TRACE.read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    change(next(event for event in events if (event["type"], event.get("method", method)) == (kind, method)))
    file = tmp_path / "changed.jsonl"
    file.write_text("\n".join(map(json.dumps, events)), encoding="utf-8")
    return file


def differences(tmp_path: Path, kind: str, method: str, change: Change) -> list[str]:
    """Differences that the program finds between the trace and the changed trace."""
    return commits.differences(commits.figures(changed(tmp_path, kind, method, change)), commits.figures(TRACE))


def test_a_recording_is_as_it_is(tmp_path: Path) -> None:
    assert differences(tmp_path, "round", "ar", lambda _: None) == []


def test_times_may_differ(tmp_path: Path) -> None:
    def later(event: dict[str, Any]) -> None:
        event["t"] += 1
        event["verify_s"] *= 2

    assert differences(tmp_path, "round", "dynatree", later) == []


def test_a_token_of_any_method_is_compared(tmp_path: Path) -> None:
    def other_token(event: dict[str, Any]) -> None:
        event["committed"][0] += 1

    assert differences(tmp_path, "round", "auto", other_token) == ["run 0, auto text"]


def test_the_trees_of_a_method_that_follows_measured_times_may_differ(tmp_path: Path) -> None:
    def unlike(event: dict[str, Any]) -> None:
        event["limited_by"] = "cost"
        event["logprobs"] = []

    assert differences(tmp_path, "round", "auto", unlike) == []
    assert differences(tmp_path, "round", "dynatree", unlike) == ["run 0, dynatree round 0"]


@pytest.mark.parametrize(("by", "found"), [(1e-5, []), (0.5, ["run 0, dynatree round 0"])])
def test_log_probabilities_may_differ_by_rounding(tmp_path: Path, by: float, found: list[str]) -> None:
    def moved(event: dict[str, Any]) -> None:
        event["logprobs"][-1] += by

    assert differences(tmp_path, "round", "dynatree", moved) == found


def test_figures_of_the_summary_are_compared(tmp_path: Path) -> None:
    def longer(event: dict[str, Any]) -> None:
        event["methods"]["fixed"]["path_length"] += 0.001
        event["methods"]["fixed"]["decode_s"] += 1

    assert differences(tmp_path, "summary", "", longer) == ["run 0, summary"]


def test_what_is_missing_on_one_side_is_a_difference() -> None:
    assert commits.differences({"a": 1}, {"a": 1, "b": 2}) == ["b"]
    assert commits.differences({"a": 1, "b": 2}, {"a": 1}) == ["b"]


class Fake:
    """A fake checkout whose speed rises with every run, as on a machine that becomes faster."""

    prompts = 2

    def __init__(self, log: list[str], name: str, share: float) -> None:
        self._log, self._name, self._share = log, name, share

    def tokens_per_second(self, _method: str, _prompt: int) -> float:
        self._log.append(self._name)
        return self._share * (1000 + len(self._log))

    def close(self) -> None:
        self._log.append("closed")


def test_speeds_are_compared_in_turn_and_told_with_an_interval(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log: list[str] = []
    monkeypatch.setattr(
        commits,
        "Worker",
        lambda checkout, *_: Fake(log, "mine", 0.9) if checkout == commits.HERE else Fake(log, "other", 1.0),
    )
    assert commits.show_speed(tmp_path, "bfloat16", 8, 0, repeats=2, starts=1) == 1
    a_lap = len(commits.MEASURED) * Fake.prompts
    assert log == ["other", "mine"] * a_lap + ["mine", "other"] * a_lap + ["other", "mine"] * a_lap + ["closed"] * 2
    assert "ar         0.900" in capsys.readouterr().out


def test_equal_processes_that_differ_from_start_to_start_are_not_taken_for_a_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shares, started = iter((0.9, 1.1, 0.95, 1.05, 0.9, 1.1)), list[Path]()

    def start(checkout: Path, *_: object) -> Fake:
        started.append(checkout)
        return Fake([], "", next(shares) if checkout == commits.HERE else 1.0)

    monkeypatch.setattr(commits, "Worker", start)
    assert commits.show_speed(tmp_path, "bfloat16", 8, 0, repeats=2, starts=6) == 0
    assert started == [commits.HERE, tmp_path, tmp_path, commits.HERE] * 3
    assert "0.9" in capsys.readouterr().out


def test_what_is_no_checkout_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["commits.py", "same", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        commits.main()
    assert ended.value.code == 2
    assert "is not a checkout of dynatui" in capsys.readouterr().err
