"""The benchmark of model families: equal sizes, ratios to full attention, and a log from which it resumes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import families
from benchmarks.families import FORMAT, KINDS, Kind, Turn
from decoder.forward.hf import skeleton
from dynatui.lab.bench import Progress
from dynatui.lab.bench.record_log import RecordLog
from tests.decoder.any_family import SHAPE, WINDOW
from tests.decoder.recurrent_families import USUAL

SMALL: dict[str, Any] = SHAPE | {"num_hidden_layers": 2}
FEW = (
    Kind("full, native", "llama", SMALL, beside="full, native", native=True),
    Kind("full", "llama", SMALL, beside="full"),
    Kind("windows", "mistral", SMALL | {"sliding_window": WINDOW}, beside="full"),
    Kind("states", "mamba2", SMALL | USUAL["mamba2"], beside="full"),
)


def arguments(output: Path) -> list[str]:
    return ["--output", str(output), "--tokens", "20,40", "--repeats", "2"]


def run(output: Path) -> int:
    return families.main(arguments(output), FEW)


def turns(output: Path) -> list[Turn]:
    return RecordLog(output / "results.jsonl", FORMAT).of(Turn)


def cells(output: Path, title: str, model: str) -> list[str]:
    """Cells of a model's row in a table of the report."""
    lines = (output / "report.md").read_text(encoding="utf-8").partition(f"## {title}\n")[2].splitlines()
    (line,) = [line for line in lines[: 4 + len(FEW)] if line.startswith(f"| {model} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_models_have_equal_numbers_of_weights() -> None:
    counts = [skeleton(kind.configuration(), torch.float32).num_parameters() for kind in KINDS]
    assert max(counts) < 1.02 * min(counts)
    assert all(40e6 < count < 75e6 for count in counts)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run that was interrupted after six turns and then completed."""
    folder, lines, right = tmp_path_factory.mktemp("resumed"), list[str](), families._said

    def interrupting(steps: Iterator[Progress]) -> Iterator[Progress]:
        for step in right(steps):
            yield step
            if step.line == "6 of 16 turns":
                raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(families, "say", lines.append)
        with patch.context() as interrupted:
            interrupted.setattr(families, "_said", interrupting)
            assert run(folder) == 130
        first = turns(folder)
        assert len(first) == 6
        assert run(folder) == 0
        assert turns(folder)[:6] == first
        assert lines[-2:] == ["100% 16 of 16 turns", f"wrote {folder / 'report.md'}"]
        lines.clear()
        assert run(folder) == 0
        assert lines == [f"wrote {folder / 'report.md'}"], "what is done is not done again"
        assert families.main(arguments(folder), FEW[:2]) == 2
        assert "with other values of models; give the same values, or set --output to another folder" in lines[-1]
    return folder


def test_every_model_is_measured_after_every_text_in_every_repeat_though_the_run_was_interrupted(output: Path) -> None:
    found = turns(output)
    assert {(turn.model, turn.tokens, turn.repeat) for turn in found} == {
        (kind.name, tokens, repeat) for kind in FEW for tokens in (20, 40) for repeat in range(2)
    }
    assert len(found) == 16
    assert all(min(turn.row_s, turn.chain_s, turn.tree_s, turn.kept_s, turn.replayed_s) > 0 for turn in found)


def test_full_attention_is_compared_with_itself_and_windows_with_a_ring_buffer(output: Path) -> None:
    assert cells(output, "Times after 40 tokens", "full")[2::2][:3] == ["1.00, 1.00 to 1.00"] * 3
    memory = {kind.name: cells(output, "Memory of caches, in MB", kind.name) for kind in FEW}
    assert memory["full"][-2] == memory["full, native"][-2] == "1.00"
    by_model = {turn.model: turn for turn in turns(output) if turn.tokens == 40}
    assert by_model["windows"].ring_bytes == by_model["full"].cache_bytes * WINDOW // (40 + len(families.TREE))
    assert memory["full"][-1] == "-"
