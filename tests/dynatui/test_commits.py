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


def later(event: dict[str, Any]) -> None:
    event["t"] += 1
    event["verify_s"] *= 2


def other_token(event: dict[str, Any]) -> None:
    event["committed"][0] += 1


def other_tree(event: dict[str, Any]) -> None:
    event["limited_by"] = "cost"
    event["logprobs"] = []


def moved(by: float) -> Change:
    def move(event: dict[str, Any]) -> None:
        event["logprobs"][-1] += by

    return move


def longer(event: dict[str, Any]) -> None:
    event["methods"]["fixed"]["path_length"] += 0.001
    event["methods"]["fixed"]["decode_s"] += 1


@pytest.mark.parametrize(
    ("kind", "method", "change", "found"),
    [
        ("round", "ar", lambda _: None, []),
        ("round", "dynatree", later, []),
        ("round", "auto", other_token, ["run 0, auto text"]),
        ("round", "auto", other_tree, []),  # auto follows measured times
        ("round", "dynatree", other_tree, ["run 0, dynatree round 0"]),
        ("round", "dynatree", moved(1e-5), []),
        ("round", "dynatree", moved(0.5), ["run 0, dynatree round 0"]),
        ("summary", "", longer, ["run 0, summary"]),
    ],
)
def test_texts_trees_and_figures_are_compared_and_times_are_not(
    tmp_path: Path, kind: str, method: str, change: Change, found: list[str]
) -> None:
    events = [json.loads(line) for line in TRACE.read_text(encoding="utf-8").splitlines()]
    change(next(event for event in events if (event["type"], event.get("method", method)) == (kind, method)))
    file = tmp_path / "changed.jsonl"
    file.write_text("\n".join(map(json.dumps, events)), encoding="utf-8")
    assert commits.differences(commits.figures(file), commits.figures(TRACE)) == found


def test_what_is_missing_on_one_side_is_a_difference() -> None:
    both: tuple[dict[str, Any], dict[str, Any]] = ({"a": 1}, {"a": 1, "b": 2})
    assert commits.differences(*both) == commits.differences(*reversed(both)) == ["b"]


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
    assert commits.show_speed(tmp_path, "bfloat16", 8, repeats=2, starts=1) == 1
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
    assert commits.show_speed(tmp_path, "bfloat16", 8, repeats=2, starts=6) == 0
    assert started == [commits.HERE, tmp_path, tmp_path, commits.HERE] * 3
    assert "0.9" in capsys.readouterr().out


def test_no_checkout_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["commits.py", "same", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        commits.main()
    assert ended.value.code == 2
    assert "is not a checkout of dynatui" in capsys.readouterr().err
