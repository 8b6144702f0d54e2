"""Measurement of the settings of a shard, with the same runner and summary as `dynatui bench speed`.

Plain decoding, decoding with the reference parameters, and decoding with the setting take turns on each prompt.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from msgspec import structs

from decoder.engine import Engine
from decoder.errors import DeviceError
from decoder.models.heads import require_whole_draft
from decoder.models.text import encode_prompts
from decoder.run.loading import load_pair
from dynatui.lab.bench.contenders import BASELINE, own
from dynatui.lab.bench.machine import examined, source_commit, utc_now
from dynatui.lab.bench.on_pair import Done, Note, OnPair, Progress, Show, interrupted, pair_names
from dynatui.lab.bench.protocol import Experiment, disturbed, endless, measured, warmed_up
from dynatui.lab.bench.record_log import LogHeader, RecordLog, opened
from dynatui.lab.bench.summary import Samples, differences, known, near_tie_judge, rows
from dynatui.lab.bench.sweep.report import FORMAT, Header, Kept, Outcome, SweepReport, read, summary
from dynatui.lab.bench.sweep.spaces import SPACES, GridPoint, Shard, SweepRequest

SETTING, REFERENCE = "setting", "reference"
TIES = {None: "one text is shorter", True: "a near tie", False: "no tie"}
Measure = Callable[[GridPoint], Kept]


def measure_sweep(
    pair: OnPair, request: SweepRequest, folder: Path, shard: Shard, note: Note, show: Show = iter
) -> Done[SweepReport]:
    """Measures the settings of a shard that are not in the shard's log; the report covers all logs in the folder."""
    with opened(folder / f"{shard.name}.jsonl", FORMAT) as log:
        asked, device, measure = ready(pair, request, note)
        log.begin(
            LogHeader(
                schema=log.schema,
                started_at=utc_now(),
                commit=source_commit(),
                machine=examined(device),
                request=asked,
                costs=None,
            )
        )
        early = interrupted(show(_steps(log, shard.of(asked.settings, asked.seed), measure, note)))
    return Done(read(folder), early)


def _steps(
    log: RecordLog[Header, Kept], settings: Sequence[GridPoint], measure: Measure, note: Note
) -> Iterator[Progress]:
    """Measures the settings that are not in the log; the progress is the decoded share of the shard's new tokens."""
    known = {kept.key for kept in log.records}
    note(f"{len(known)} of {len(settings)} settings are measured")
    done = sum(setting.length for setting in settings if setting.key in known)
    for setting in (each for each in settings if each.key not in known):
        log.add(measure(setting))
        count, done = f"{len(log.records)} of {len(settings)}", done + setting.length
        note(f"{count}: {summary(log.records[-1])}")
        yield Progress(f"{count} settings", done / sum(each.length for each in settings))


def ready(options: OnPair, request: SweepRequest, note: Note) -> tuple[SweepRequest, torch.device, Measure]:
    """Loads the target and draft and checks that the longest text fits into their context; returns the request with
    the names of the pair, the target's device, and the function that measures one setting.
    """
    require_whole_draft("dynatui bench sweep", options.target, options.draft)
    engine = endless(load_pair(**options.pair_options, report=note))
    pair = engine.pair
    asked = structs.replace(request, **pair_names(pair))
    longest = max(setting.length for setting in asked.settings)
    prompts = encode_prompts(pair.tokenizer, asked.prompts, longest, pair.context, limit=pair.limit)
    return asked, pair.target.device, lambda setting: compared(engine, asked, prompts, setting)


def compared(engine: Engine, request: SweepRequest, prompts: Sequence[Sequence[int]], setting: GridPoint) -> Kept:
    """Measures one setting against plain decoding (`ar`) and the reference parameters.

    The setting has no speed if its trees do not fit in memory, if one of its texts differs from the text of `ar`
    without a near tie of two logits, or if its texts differ from `ar` on all prompts.
    """
    (plain, config), method = request.configs(setting), SPACES[request.space].method
    contenders = [
        own(BASELINE, BASELINE, BASELINE, config),
        own(REFERENCE, REFERENCE, method, plain),
        own(SETTING, SETTING, method, config),
    ]
    plan = Experiment(contenders, prompts, prompts[:1], request.repeats, request.seed)
    try:
        warmed_up(engine, plan, lambda _: None)
        samples = Samples(measured(engine, plan, plan.turns()), contenders)
    except DeviceError as error:
        return Kept(key=setting.key, reason=str(error))
    differing = [each for each in differences(samples, near_tie_judge(engine, prompts)) if each.name == SETTING]
    faults = [each for each in differing if not each.near_tie]
    if faults or len(differing) == len(prompts):
        first = (faults or differing)[0]
        place = f"the text of prompt {first.prompt + 1} first differs from that of ar at token {first.index}"
        return Kept(key=setting.key, reason=f"{place}: {TIES[first.near_tie]}")
    outcome = _outcome(samples, request.seed, len(differing))
    return Kept(key=setting.key, outcome=outcome, reason=None if outcome else "the texts are too short to be timed")


def _outcome(samples: Samples, seed: int, near_ties: int) -> Outcome | None:
    row = next(row for row in rows(samples, seed, None) if row.name == SETTING)
    if row.over_ar is None or row.tokens_per_second is None or row.tokens_per_round is None or row.round_ms is None:
        return None
    mine = samples.frame[samples.frame.lane == SETTING].groupby("prompt")[["acceptance_rate", "drafted", "rounds"]]
    middle = mine.median().median()
    return Outcome(
        speed=row.over_ar,
        over_reference=samples.ratio(SETTING, REFERENCE, seed),
        tokens_per_second=row.tokens_per_second.value,
        tokens_per_round=row.tokens_per_round,
        acceptance_rate=known(middle.acceptance_rate),
        nodes_per_round=float(middle.drafted),
        rounds=float(middle.rounds),
        round_ms=row.round_ms,
        disturbed=disturbed(turn.waited for turn in samples.all()),
        near_ties=near_ties,
    )
