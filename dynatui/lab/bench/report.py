"""Report of a complete measurement, as `--json` writes it: samples, settings, machine, and computed tables."""

from dataclasses import asdict
from typing import Any

import msgspec

from decoder.analysis.metrics import figures
from decoder.engine import Engine
from decoder.events import Figures, place
from decoder.forward.language_model import LanguageModel
from decoder.models.pair import Pair
from decoder.run.config import RunConfig
from decoder.run.decoding_path import decoding_path
from dynatui.lab.bench.contenders import BASELINE, Arithmetic, Work, shape
from dynatui.lab.bench.machine import Machine, load, read_bytes, utc_now
from dynatui.lab.bench.on_pair import pair_names
from dynatui.lab.bench.protocol import Experiment
from dynatui.lab.bench.rounds import Growth, Rounds, growth, rounds
from dynatui.lab.bench.summary import (
    Bandwidth,
    Comparison,
    Difference,
    Row,
    Samples,
    comparisons,
    differences,
    near_tie_judge,
    rows,
)

SCHEMA = 1
OF_SAMPLE = ("contender", "group", "prompt", "repeat", "kv_bytes", "waits", "waited")
"""Fields of `Record` that are those of `Sample`."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """Models, machine and settings of a measurement."""

    schema: int = SCHEMA
    started_at: str
    """Start of the measurement in UTC, as ISO 8601."""
    machine: Machine
    target: str
    draft: str
    device: str
    ranks: list[str] = []
    """Device of each process that runs the target; empty if one process runs it."""
    dtype: str
    draft_dtype: str
    exact: bool = False
    """Whether passes are batch-invariant, so that all methods compute bit-identical logits."""
    path: str = ""
    """Name of the decoding path (see `decoder.run.decoding_path`); `path_reason` is why this path was chosen."""
    path_reason: str = ""
    passes: dict[str, str] = {}
    """What computed the forward passes of each model: "compiled" (the engine's own code), "torch" or "llama.cpp"."""
    contenders: dict[str, dict[str, Any]]
    """All parameters of each contender, by contender name."""
    prompts: list[list[int]]
    """Prompts as token ids."""
    max_new_tokens: int
    repeats: int
    seed: int
    temperature: float = 0.0
    """Above 0, other libraries draw other random numbers, so their texts are not compared with the texts of `ar`."""
    top_k: int = 0
    top_p: float = 1.0

    @property
    def place(self) -> str:
        """Device of the pair as text, or the devices of all processes if the target is split over several processes."""
        return place(self.device, self.ranks)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one turn, as in `Sample`; `figures` compares the text with the text of `ar` in the same block."""

    contender: str
    group: str
    prompt: int
    repeat: int
    figures: Figures
    models_s: float | None
    """Part of `decode_s` spent in calls of both models; None if unknown."""
    target_work: Work | None
    """Work of the target's calls after prefill; None if unknown."""
    draft_work: Work | None
    kv_bytes: int | None
    waits: int | None
    waited: float | None


class Common(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that `Report` and `RoundsReport` share."""

    setup: Setup
    load_after: float | None
    peak_bytes_by_rank: list[int] = []
    """Peak memory of each process of the target; empty if one process runs the target, or if a process could not
    report its peak.
    """


class Report(Common, frozen=True, kw_only=True):
    """Report of methods and baselines on texts."""

    rows: list[Row]
    best_generate: str | None
    comparisons: list[Comparison]
    differences: list[Difference]
    texts: dict[int, list[int]]
    """Token ids of the text of `ar`, by prompt number."""
    samples: list[Record]


class RoundsReport(Common, frozen=True, kw_only=True):
    """Report of rounds with trees of given sizes after texts of given lengths."""

    arithmetic: Arithmetic
    rounds: list[Rounds]
    growth: list[Growth]
    """Growth of the cost of rounds with the length of the text, relative to the cost at the first length."""
    samples: list[Record]


def setup(engine: Engine, machine: Machine, plan: Experiment, config: RunConfig) -> Setup:
    path, pair = decoding_path(engine), engine.pair
    return Setup(
        started_at=utc_now(),
        machine=machine,
        **pair_names(pair),
        ranks=list(pair.target.ranks.devices) if pair.target.ranks else [],
        exact=engine.exact,
        path=path.name,
        path_reason=path.reason,
        passes={role: _computed_by(model) for role, model in pair.models.items()},
        contenders={contender.name: dict(contender.settings) for contender in plan.contenders},
        prompts=[list(prompt) for prompt in plan.prompts],
        max_new_tokens=config.max_new_tokens,
        repeats=plan.repeats,
        seed=config.seed,
        **asdict(config.sampling),
    )


def _computed_by(model: LanguageModel) -> str:
    compiled = model.device.type == "cpu" and not model.by_torch_threads
    return model.computed_by or ("compiled" if compiled else "torch")


def of_texts(setup: Setup, engine: Engine, samples: Samples, peaks: list[int]) -> Report:
    """Report of samples on texts; `peaks` has the peak memory of each rank, in bytes."""
    return Report(
        setup=setup,
        load_after=load(),
        peak_bytes_by_rank=peaks,
        rows=rows(samples, setup.seed, _bandwidth(setup, engine.pair)),
        best_generate=samples.best(("generate",), setup.seed),
        comparisons=comparisons(samples, setup.seed),
        differences=differences(samples, near_tie_judge(engine, setup.prompts)),
        texts={prompt: list(text) for prompt, text in samples.texts.items()},
        samples=_records(samples),
    )


def of_rounds(setup: Setup, pair: Pair, samples: Samples, peaks: list[int]) -> RoundsReport:
    """Report of rounds after random tokens; `peaks` as for `of_texts`."""
    contexts = [len(prompt) for prompt in setup.prompts]
    arithmetic = Arithmetic(shape(pair.target.hf.skeleton), shape(pair.draft_model.hf.skeleton))
    return RoundsReport(
        setup=setup,
        load_after=load(),
        peak_bytes_by_rank=peaks,
        arithmetic=arithmetic,
        rounds=rounds(samples, contexts, setup.seed, arithmetic, _bandwidth(setup, pair)),
        growth=growth(samples, contexts, setup.seed, arithmetic),
        samples=_records(samples),
    )


def _bandwidth(setup: Setup, pair: Pair) -> Bandwidth | None:
    """Bytes per pass and copy bandwidth; None without CUDA, with several target processes, or with llama.cpp."""
    copied = setup.machine.copy_bytes_per_s
    in_torch = not any(model.computed_by for model in pair.models.values())
    if copied is None or pair.target.ranks or not in_torch:
        return None
    return Bandwidth(read_bytes(pair.target), read_bytes(pair.draft) if pair.draft else 0, copied)


def _records(samples: Samples) -> list[Record]:
    plain = {(turn.repeat, turn.prompt): turn.tally for turn in samples.all() if turn.contender == BASELINE}
    return [
        Record(
            figures=figures(turn.tally, plain[turn.repeat, turn.prompt], same_until=samples.until(turn)),
            models_s=turn.seen.models_s if turn.seen else None,
            target_work=turn.seen.target if turn.seen else None,
            draft_work=turn.seen.draft if turn.seen else None,
            **{name: getattr(turn, name) for name in OF_SAMPLE},
        )
        for turn in samples.all()
    ]
