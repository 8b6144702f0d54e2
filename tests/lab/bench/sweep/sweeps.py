"""A small sweep: its request, results, machine and logs."""

from pathlib import Path
from typing import Any

import torch

from dynatui.lab.bench.machine import examined
from dynatui.lab.bench.record_log import LogHeader, opened
from dynatui.lab.bench.statistics import Median
from dynatui.lab.bench.sweep.log import FORMAT, SCHEMA, Kept
from dynatui.lab.bench.sweep.outcome import Outcome
from dynatui.lab.bench.sweep.request import SweepRequest
from dynatui.lab.bench.sweep.spaces import Shard

AXES = {"D": (3, 4, 5), "B": (2, 3), "tau": (0.01, 0.05), "T": (100, 200)}
MACHINE = examined(torch.device("cpu"))


def request(**changes: Any) -> SweepRequest:
    given: dict[str, Any] = {
        "space": "fixed",
        "axes": AXES,
        "reference": {"depth": 5},
        "target": "books-16m",
        "draft": "books-1m",
        "device": "cpu",
        "dtype": "float32",
        "draft_dtype": "float32",
        "prompts": ("The tree grows",),
        "repeats": 1,
        "seed": 0,
    }
    return SweepRequest(**given | changes)


def outcome(speed: float = 1.5, **changes: Any) -> Outcome:
    given: dict[str, Any] = {
        "speed": Median(value=speed, low=speed - 0.1, high=speed + 0.1),
        "over_reference": Median(value=1.0, low=None, high=None),
        "tokens_per_second": 200.0,
        "tokens_per_round": 3.0,
        "acceptance_rate": 0.5,
        "nodes_per_round": 4.0,
        "rounds": 30.0,
        "round_ms": 5.0,
        "disturbed": 0,
    }
    return Outcome(**given | changes)


def logged(folder: Path, question: SweepRequest, results: dict[str, Outcome | str], shard: Shard | None = None) -> Path:
    """Appends these results by key to a shard's log, as a sweep does; a text is the reason for no speed."""
    path = folder / f"{(shard or Shard()).name}.jsonl"
    with opened(path, FORMAT) as log:
        log.begin(LogHeader(schema=SCHEMA, started_at="", machine=MACHINE, request=question, costs=None))
        for key, result in results.items():
            reason = result if isinstance(result, str) else None
            log.add(Kept(key=key, outcome=result if isinstance(result, Outcome) else None, reason=reason))
    return path
