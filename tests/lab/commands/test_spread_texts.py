"""A target over several processes writes the text of one process, by every method that supports several processes."""

import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from decoder.events import Round
from decoder.methods import METHODS
from dynatui import main as cli
from dynatui.record.reader import read_events
from tests.decoder.broken_targets import damaged
from tests.dynatui.pty_terminal import ROOT
from tests.tiny import SPECIAL, VOCABULARY, TinyPair, spread_pair

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs signals and /proc")

FAMILIES = ("llama", "neox", "qwen3")
REPEATED = "The captain looked at the sea. " * 6
"""A repetitive text, which lookup can predict from its past."""


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TinyPair]:
    home = tmp_path_factory.mktemp("pairs")
    return {family: spread_pair(family, home / family) for family in FAMILIES}


@pytest.mark.soak
@pytest.mark.parametrize("temperature", ["0", "0.7"])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("family", [*FAMILIES, "embedded"])
def test_all_families_and_methods_write_what_one_process_writes(
    pairs: dict[str, TinyPair],
    family: str,
    count: int,
    temperature: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = [*models(pairs.get(family)), *SHORT[:2], "--methods", SPREAD, "--max-new-tokens", "200"]
    found = spread_as_whole([*asked, "--temperature", temperature], count, tmp_path, capsys)
    assert {len(written) for written in tokens(found).values()} == {200}


@pytest.mark.soak
@pytest.mark.parametrize("temperature", ["0", "0.7"])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("draft", ["lookup", "model"])
def test_lookups_and_trees_of_several_origins_write_what_one_process_writes(
    draft: str, count: int, temperature: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = tmp_path / "run.jsonl"
    asked = [*FLOAT32, "--prompt", REPEATED, "--methods", "auto,ar", "--max-new-tokens", "200"]
    asked += ["--temperature", temperature, "--record", str(recording)]
    spread_as_whole([*asked, *(("--draft", "lookup") if draft == "lookup" else ())], count, tmp_path, capsys)
    rounds = [event for event in read_events(recording) if isinstance(event, Round) and event.method == "auto"]
    assert any(len(each.tokens) > 1 for each in rounds)
    mixed = any({"draft", "lookup"} <= set(each.origins) for each in rounds)
    assert mixed == (draft == "model")


def test_two_processes_that_torchrun_has_started_write_what_one_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The target has more tokens than its draft, and writes some of them."""
    asked = [*models(SPECIAL["wide-target"](tmp_path / "wide")), *SHORT, "--methods", SPREAD]
    spread = spread_as_whole(asked, 2, tmp_path, capsys)
    assert max(tokens(spread)["ar"]) >= VOCABULARY
    assert spread["ranks"] == ["cpu"] * 2
    assert len(spread["peak_bytes_by_rank"]) == 2
    assert min(spread["peak_bytes_by_rank"]) > 2**20


def test_logits_without_a_choice_end_every_method_over_several_processes(
    pairs: dict[str, TinyPair], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tokens(decoded_here([*models(pairs["llama"]), *SHORT, "--methods", "ar"], capsys))["ar"]
    token = next(token for place, token in enumerate(text[3:], 3) if token not in text[:place])
    broken = TinyPair(damaged(pairs["llama"].target, tmp_path / "broken", token, math.nan), pairs["llama"].draft)
    done = ended_run(torchrun([*models(broken), *SHORT, "--methods", SPREAD, "--json"]), tmp_path)
    assert done.code != 0
    found = json.loads(done.printed)
    for method, figures in found["methods"].items():
        assert figures["tokens"] == text[: len(figures["tokens"])], method
        assert len(figures["tokens"]) <= text.index(token) + 1, method
        assert re.search(r"logits in round \d+ are NaN or infinite, computed in float32", figures["error"]), method


@pytest.mark.soak
@pytest.mark.parametrize(
    "further", [(), ("--hostile",), ("--draft", "lookup", "--methods", "auto,linear")], ids=" ".join
)
def test_methods_are_measured_over_several_processes(
    pairs: dict[str, TinyPair], further: tuple[str, ...], tmp_path: Path
) -> None:
    kept, whole = tmp_path / "speed.jsonl", tmp_path / "whole.jsonl"
    asked = ["bench", "speed", *models(pairs["llama"]), *SHORT, "--repeats", "1"]
    asked += ["--methods", "auto,linear", "--no-baselines", *further]
    done = ended_run(torchrun([*asked, "--json", str(kept)]), tmp_path)
    assert done.code == 0, done.errors
    assert done.printed.count("same as ar") == 1
    assert cli.main([*asked, "--json", str(whole)]) == 0
    (spread,) = map(json.loads, kept.read_text().splitlines())
    assert spread["setup"]["ranks"] == ["cpu", "cpu"]
    assert spread["texts"] == json.loads(whole.read_text())["texts"]
    assert {row["same"] for row in spread["rows"]} == {1}


@pytest.mark.soak
def test_rounds_after_texts_of_given_lengths_are_measured_over_several_processes(
    pairs: dict[str, TinyPair], tmp_path: Path
) -> None:
    sizes = ["--context", "8,24", "--trees", "1x2,2x4", "--repeats", "1", "--max-new-tokens", "4"]
    done = ended_run(torchrun(["bench", "speed", *models(pairs["llama"]), *sizes]), tmp_path)
    assert done.code == 0, done.errors
    assert "Growth relative to 8 tokens:" in done.printed


def test_what_several_processes_cannot_do_ends_all_of_them(tmp_path: Path) -> None:
    done = ended_run(torchrun(["--headless", "--prompt", "x", "--device", "cuda:0"]), tmp_path)
    assert (done.code != 0, done.printed) == (True, "")
    assert "--device cuda:0 is a single device" in done.errors


SPREAD = ",".join(name for name, method in METHODS.items() if not method.whole_target)
FLOAT32 = ("--device", "cpu", "--dtype", "float32")
SHORT = ("--prompt", "The tree grows", "--max-new-tokens", "12")
_PATIENCE_S = 300.0


class Ended(NamedTuple):
    code: int
    printed: str
    errors: str


def models(pair: TinyPair | None) -> list[str]:
    """Command-line options that name the models of a tiny pair or of the embedded pair."""
    return [*FLOAT32, *(("--target", str(pair.target), "--draft", str(pair.draft)) if pair else ())]


def ended_run(command: Sequence[str], cwd: Path) -> Ended:
    """Runs Python with these arguments and one thread to its end, and kills any processes of the run that are left."""
    with subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT))},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            printed, errors = process.communicate(timeout=_PATIENCE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return Ended(process.returncode, printed, errors)


def torchrun(asked: Sequence[str], count: int = 2) -> list[str]:
    """Python's arguments that run the program with these arguments in `count` processes."""
    return ["-m", "torch.distributed.run", "--nproc-per-node", str(count), "-m", "dynatui", *asked]


def decoded_here(asked: Sequence[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Parsed JSON output of a run without a screen in this process."""
    assert cli.main([*asked, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def tokens(found: dict[str, Any]) -> dict[str, list[int]]:
    return {name: figures["tokens"] for name, figures in found["methods"].items()}


def spread_as_whole(asked: Sequence[str], count: int, cwd: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Checks that a run over `count` processes writes the same text as a run in one; returns the former's output."""
    done = ended_run(torchrun([*asked, "--json"], count), cwd)
    assert done.code == 0, done.errors
    spread: dict[str, Any] = json.loads(done.printed)
    assert tokens(spread) == tokens(decoded_here(asked, capsys))
    assert all(figures["identical_to_ar"] is not False for figures in spread["methods"].values())
    return spread
