"""A whole measurement in one value, as `--json` keeps it: every sample, the settings, the machine, and what follows."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import msgspec

from decoder.analysis.metrics import figures
from decoder.bench.arithmetic import Arithmetic, Work, shape
from decoder.bench.contenders import BASELINE, Contender
from decoder.bench.machine import Machine, load, read_bytes
from decoder.bench.protocol import Sample
from decoder.bench.rounds import Growth, Rounds, growth, rounds
from decoder.bench.samples import Samples
from decoder.bench.summary import Bandwidth, Comparison, Difference, Row, comparisons, differences, rows
from decoder.config import RunConfig
from decoder.decoding_path import decoding_path
from decoder.engine import Engine
from decoder.events import Figures, place
from decoder.forward.near_tie import Judge, Verdict
from decoder.models.pair import Pair

SCHEMA = 1


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured, and on what."""

    schema: int = SCHEMA
    started_at: str
    """UTC, ISO 8601."""
    machine: Machine
    target: str
    draft: str
    device: str
    ranks: list[str] = []
    """The device of each process that runs the target; empty where one does."""
    dtype: str
    draft_dtype: str
    exact: bool = False
    """Whether methods agree bit for bit."""
    path: str = ""
    """How rounds are decoded, and why; see `decoder.decoding_path`."""
    path_reason: str = ""
    contenders: dict[str, dict[str, Any]]
    """All parameters of each, by its name."""
    prompts: list[list[int]]
    """Token ids."""
    max_new_tokens: int
    repeats: int
    seed: int
    temperature: float = 0.0
    """0 is greedy; above it transformers' baselines draw noise of their own, and their texts are not compared."""
    top_k: int = 0
    top_p: float = 1.0

    @property
    def place(self) -> str:
        """The device, or the processes of the target and theirs."""
        return place(self.device, self.ranks)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One text that one contender decoded; its figures compare it with ar's text of the same turn."""

    contender: str
    group: str
    prompt: int
    repeat: int
    figures: Figures
    models_s: float | None
    """Of `decode_s`, the time in the calls of both models, where it is known."""
    target_work: Work | None
    """What the target's calls after the prompt had to do, where they are known."""
    draft_work: Work | None
    kv_bytes: int | None
    """Keys and values of both models as allocated, where it is known."""
    waits: int | None
    """How often the host waited for the device in rounds, where it is counted."""
    waited: float | None
    """Time that threads waited for a processor, over the turn's, where it is known."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Methods and baselines on texts."""

    setup: Setup
    load_after: float | None
    peak_bytes_by_rank: list[int] = []
    """Most memory that each process of the target had in use; empty where one runs it, or could not be asked."""
    rows: list[Row]
    best_generate: str | None
    comparisons: list[Comparison]
    differences: list[Difference]
    texts: dict[int, list[int]]
    """ar's tokens, by the prompt's number."""
    samples: list[Record]


class RoundsReport(msgspec.Struct, frozen=True, kw_only=True):
    """Rounds of given sizes after texts of given lengths."""

    setup: Setup
    load_after: float | None
    peak_bytes_by_rank: list[int] = []
    """As in `Report`."""
    arithmetic: Arithmetic
    rounds: list[Rounds]
    growth: list[Growth]
    """Against the first length."""
    samples: list[Record]


def setup(
    engine: Engine,
    machine: Machine,
    contenders: Sequence[Contender],
    prompts: Sequence[Sequence[int]],
    config: RunConfig,
    repeats: int,
) -> Setup:
    """What is about to be measured."""
    path, pair = decoding_path(engine), engine.pair
    return Setup(
        started_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        machine=machine,
        target=pair.target_name,
        draft=pair.draft_name,
        device=pair.device,
        ranks=list(pair.target.ranks.devices) if pair.target.ranks else [],
        dtype=pair.dtype,
        draft_dtype=pair.draft_dtype,
        exact=engine.exact,
        path=path.name,
        path_reason=path.reason,
        contenders={contender.name: dict(contender.settings) for contender in contenders},
        prompts=[list(prompt) for prompt in prompts],
        max_new_tokens=config.max_new_tokens,
        repeats=repeats,
        seed=config.seed,
        **asdict(config.sampling),
    )


def of_texts(setup: Setup, engine: Engine, samples: Samples, peaks: Sequence[int] = ()) -> Report:
    """What samples on texts tell; `peaks` are bytes of memory by rank."""
    pair = engine.pair
    score = Judge(pair.target, engine.gumbel_noise()) if pair.target.hf.available else None

    def judge(prompt: int, before: Sequence[int], rivals: tuple[int, int], by_module: bool) -> Verdict | None:  # noqa: FBT001 - a `Judge`
        prefix = [*setup.prompts[prompt], *before]
        return score(prefix, rivals, by_module=by_module) if score else None

    return Report(
        setup=setup,
        load_after=load(),
        peak_bytes_by_rank=list(peaks),
        rows=rows(samples, setup.seed, _bandwidth(setup, pair)),
        best_generate=samples.best(("generate",), setup.seed),
        comparisons=comparisons(samples, setup.seed),
        differences=differences(samples, judge),
        texts={prompt: list(text) for prompt, text in samples.texts.items()},
        samples=_records(samples),
    )


def of_rounds(setup: Setup, pair: Pair, samples: Samples, peaks: Sequence[int] = ()) -> RoundsReport:
    """What samples on random tokens tell; `peaks` as for `of_texts`."""
    contexts = [len(prompt) for prompt in setup.prompts]
    arithmetic = Arithmetic(shape(pair.target.hf.skeleton), shape(pair.draft_model.hf.skeleton))
    return RoundsReport(
        setup=setup,
        load_after=load(),
        peak_bytes_by_rank=list(peaks),
        arithmetic=arithmetic,
        rounds=rounds(samples, contexts, setup.seed, arithmetic, _bandwidth(setup, pair)),
        growth=growth(samples, contexts, setup.seed, arithmetic),
        samples=_records(samples),
    )


def _bandwidth(setup: Setup, pair: Pair) -> Bandwidth | None:
    """What speeds are held against; unknown where one device is asked and others read weights too."""
    copied = setup.machine.copy_bytes_per_s
    if copied is None or pair.target.ranks:
        return None
    return Bandwidth(read_bytes(pair.target), read_bytes(pair.draft) if pair.draft else 0, copied)


def _records(samples: Samples) -> list[Record]:
    plain = {(turn.repeat, turn.prompt): turn.tally for turn in samples.all() if turn.contender == BASELINE}
    return [
        _record(
            turn,
            figures(
                turn.tally,
                plain[turn.repeat, turn.prompt],
                same_until=None if turn.contender in samples.draws_alone else turn.same_until,
            ),
        )
        for turn in samples.all()
    ]


def _record(turn: Sample, found: Figures) -> Record:
    return Record(
        contender=turn.contender,
        group=turn.group,
        prompt=turn.prompt,
        repeat=turn.repeat,
        figures=found,
        models_s=turn.seen.models_s if turn.seen else None,
        target_work=turn.seen.target if turn.seen else None,
        draft_work=turn.seen.draft if turn.seen else None,
        kv_bytes=turn.kv_bytes,
        waits=turn.waits,
        waited=turn.waited,
    )
