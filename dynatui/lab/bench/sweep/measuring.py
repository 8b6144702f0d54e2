"""Measurement of the settings of a shard.

Plain decoding, decoding with the reference parameters, and decoding with the setting take turns on each prompt.
"""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import torch

from decoder.engine import Engine
from decoder.errors import DeviceError
from decoder.knobs import TunableParameters
from decoder.models.chat import encode_prompts
from decoder.models.drafts import require_whole_draft
from decoder.run.loading import load_pair
from dynatui.lab.bench.contenders import BASELINE, own
from dynatui.lab.bench.machine import examined, source_commit, utc_now
from dynatui.lab.bench.on_pair import Note
from dynatui.lab.bench.protocol import Experiment, disturbed, endless, measured, warmed_up
from dynatui.lab.bench.record_log import LogHeader, opened
from dynatui.lab.bench.samples import Measure as Figure
from dynatui.lab.bench.samples import Samples
from dynatui.lab.bench.statistics import estimate
from dynatui.lab.bench.summary import Difference, differences, near_tie_judge, per_round, rows
from dynatui.lab.bench.sweep.job import OnSettings
from dynatui.lab.bench.sweep.log import FORMAT, SCHEMA, Header, Kept
from dynatui.lab.bench.sweep.outcome import Outcome, Refused, Result
from dynatui.lab.bench.sweep.report import SweepReport, read
from dynatui.lab.bench.sweep.request import SweepRequest
from dynatui.lab.bench.sweep.spaces import Setting, Shard, space_named

SETTING, REFERENCE = "setting", "reference"
Prompts = Sequence[Sequence[int]]


Measure = Callable[[Setting], Result]


def measured_settings(job: OnSettings, folder: Path, shard: Shard, note: Note) -> Generator[SweepReport, None, None]:
    """Measures the settings of a shard that its log lacks; yields a report before and after each.

    Raises:
        ConfigError: The log cannot be used; see `RecordLog`.
        DecoderError: A prompt does not fit into the context, or loading the models or using the device fails.
    """
    with opened(folder / f"{shard.name}.jsonl", FORMAT) as log:
        request, device, measure = ready(job, note)
        log.begin(_header(request, device))
        known = {kept.key for kept in log.records}
        yield read(folder, shard)
        for setting in (each for each in shard.of(request.settings, request.seed) if each.key not in known):
            yield read(folder, shard, setting)
            result = measure(setting)
            refused = result.reason if isinstance(result, Refused) else None
            log.add(Kept(key=setting.key, outcome=result if isinstance(result, Outcome) else None, reason=refused))
            yield read(folder, shard)


def _header(request: SweepRequest, device: torch.device) -> Header:
    return LogHeader(
        schema=SCHEMA,
        started_at=utc_now(),
        commit=source_commit(),
        machine=examined(device),
        request=request,
        costs=None,
    )


def ready(job: OnSettings, note: Note) -> tuple[SweepRequest, torch.device, Measure]:
    """Loads the target and draft and checks that the longest text fits into their context; returns the request, the
    target's device, and the function that measures one setting.

    Raises:
        DecoderError: A prompt does not fit into the context, or loading the models or using the device fails.
    """
    require_whole_draft("dynatui bench sweep", job.target, job.draft)
    engine = endless(load_pair(**job.pair_options, report=note))
    request = job.request(engine.pair)
    longest = max(setting.length for setting in request.settings)
    prompts = encode_prompts(
        engine.pair.tokenizer, request.prompts, longest, engine.pair.context, limit=engine.pair.limit
    )

    def measure(setting: Setting) -> Result:
        return compared(engine, request, job.base, prompts, setting)

    return request, engine.pair.target.device, measure


def compared(
    engine: Engine, request: SweepRequest, base: TunableParameters, prompts: Prompts, setting: Setting
) -> Result:
    """Measures one setting against plain decoding (`ar`) and the reference parameters.

    The result is `Refused` if the setting's trees do not fit in memory, a text differs from the text of `ar` without a
    near tie of two logits, or texts differ on all prompts.
    """
    space = space_named(request.space)
    config, plain = space.config(base, setting), space.plain_config(base, setting)
    contenders = [
        own(BASELINE, BASELINE, BASELINE, config),
        own(REFERENCE, REFERENCE, space.method, plain),
        own(SETTING, SETTING, space.method, config),
    ]
    plan = Experiment(contenders, prompts, prompts[:1], request.repeats, request.seed)
    try:
        warmed_up(engine, plan, lambda _: None)
        samples = Samples(measured(engine, plan, plan.turns()), contenders)
    except DeviceError as error:
        return Refused(reason=str(error))
    differing = [each for each in differences(samples, near_tie_judge(engine, prompts)) if each.name == SETTING]
    faults = [each for each in differing if not each.near_tie]
    if faults or len(differing) == len(prompts):
        return Refused(reason=_why((faults or differing)[0]))
    return _outcome(samples, request.seed, len(differing))


def _outcome(samples: Samples, seed: int, near_ties: int) -> Result:
    row = next(row for row in rows(samples, seed, None) if row.name == SETTING)
    nodes, rounds = (_middle(samples, figure) for figure in (per_round("drafted"), lambda figures: figures.rounds))
    if row.over_ar is None or row.tokens_per_second is None or row.tokens_per_round is None or row.round_ms is None:
        return Refused(reason="the texts are too short to be timed")
    return Outcome(
        speed=row.over_ar,
        over_reference=samples.ratio(SETTING, REFERENCE, seed),
        tokens_per_second=row.tokens_per_second.value,
        tokens_per_round=row.tokens_per_round,
        acceptance_rate=_middle(samples, lambda figures: figures.acceptance_rate),
        nodes_per_round=nodes or 0.0,
        rounds=rounds or 0.0,
        round_ms=row.round_ms,
        disturbed=disturbed(turn.waited for turn in samples.all()),
        near_ties=near_ties,
    )


def _middle(samples: Samples, figure: Figure) -> float | None:
    middle = estimate(samples.values(SETTING, figure, samples.prompts), 0)
    return middle.value if middle else None


def _why(difference: Difference) -> str:
    tie = {None: "one text is shorter", True: "a near tie", False: "no tie"}[difference.near_tie]
    return (
        f"the text of prompt {difference.prompt + 1} first differs from that of ar at token {difference.index}: {tie}"
    )
