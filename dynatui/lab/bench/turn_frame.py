"""Samples as a frame: a row for each turn, with its contender, prompt and repeat, and its figures as columns.

Counts and times are means per round; what is unknown is NaN.
"""

from dataclasses import dataclass

import pandas as pd

from decoder.analysis.metrics import figures
from decoder.events import Figures
from dynatui.lab.bench.arithmetic import Arithmetic
from dynatui.lab.bench.protocol import Sample
from dynatui.lab.bench.samples import Samples

PER_ROUND = {"round_s": "decode_s"} | {
    key: key for key in ("draft_s", "verify_s", "commit_s", "host_s", "target_forwards", "draft_forwards", "drafted")
}
"""Columns that are a figure divided by the number of rounds."""
AS_THEY_ARE = ("tokens_per_second", "tokens_per_round", "acceptance_rate", "rounds", "peak_bytes")


@dataclass(frozen=True)
class Bandwidth:
    """Bytes of weights that a pass of each model reads, and the device's copy bandwidth."""

    target_bytes: int
    draft_bytes: int
    copy_bytes_per_s: float

    def share(self, figures: Figures) -> float | None:
        """Share of the memory bandwidth that a run reached; None if its forward passes are unknown."""
        if figures.target_forwards is None or figures.draft_forwards is None or not figures.decode_s:
            return None
        read = figures.target_forwards * self.target_bytes + figures.draft_forwards * self.draft_bytes
        return read / figures.decode_s / self.copy_bytes_per_s


def turn_frame(samples: Samples, bandwidth: Bandwidth | None, arithmetic: Arithmetic | None = None) -> pd.DataFrame:
    """Turns of all complete blocks, in the order of repeats; `has_speed` is true where all texts of the contender on
    the prompt are right.
    """
    has_speed = {name: samples.same(name) for name in samples.groups}
    rows = [
        {
            "contender": turn.contender,
            "prompt": turn.prompt,
            "repeat": turn.repeat,
            "has_speed": turn.prompt in has_speed[turn.contender],
            **_figures(turn, bandwidth, arithmetic),
        }
        for turn in samples.all()
    ]
    keys = ["contender", "prompt", "repeat", "has_speed"]
    frame = pd.DataFrame(rows).sort_values("repeat", kind="stable", ignore_index=True)
    return frame.astype(dict.fromkeys(frame.columns.drop(keys), "float64"))


def known(value: float) -> float | None:
    """A value of a frame; None instead of NaN."""
    return None if pd.isna(value) else float(value)


def _figures(turn: Sample, bandwidth: Bandwidth | None, arithmetic: Arithmetic | None) -> dict[str, float | None]:
    whole, seen = figures(turn.tally, None), turn.seen
    work = arithmetic.multiply_adds(seen.target, seen.draft) if arithmetic and seen else None
    known = whole.host_s is not None and whole.commit_s is not None and whole.decode_s
    return {
        **{column: getattr(whole, column) for column in AS_THEY_ARE},
        **{column: _over(getattr(whole, key), whole.rounds) for column, key in PER_ROUND.items()},
        "host_share": ((whole.host_s or 0) + (whole.commit_s or 0)) / whole.decode_s if known else None,
        "rest_share": 1 - seen.models_s / turn.tally.decode_s if seen else None,
        "bandwidth_share": bandwidth.share(whole) if bandwidth else None,
        "waits": _over(turn.waits, whole.rounds),
        "multiply_adds": _over(work, whole.rounds),
        "kv_bytes": turn.kv_bytes,
    }


def _over(value: float | None, count: float) -> float | None:
    return None if value is None or not count else value / count
