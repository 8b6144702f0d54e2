"""Complete measurement of `dynatui bench paper`: models are loaded, and each experiment is measured block by block.

In a block, all lanes decode one prompt, one after the other and in random order; the decoding by one lane is a turn.
Blocks that the log already contains are not measured again.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from decoder.analysis.metrics import Tally, figures
from decoder.engine import Engine
from decoder.errors import ConfigError, PromptError
from decoder.events import Figures
from decoder.forward.near_tie import Judge
from decoder.methods import METHODS, WHOLE
from decoder.models.pair import Pair
from decoder.models.text import TOKEN_CHARACTERS, encode_prompt, without_surrogates
from decoder.run.config import RunConfig
from decoder.run.loading import load_pair
from decoder.sampling.settings import Sampling, Schedule
from decoder.system.whole_files import made_folder
from dynatui.lab.bench import Done, Note, Progress, Show, interrupted, pair_names
from dynatui.lab.bench.baselines import baselines
from dynatui.lab.bench.contenders import BASELINE, Contender, own
from dynatui.lab.bench.data_sets import TextSet
from dynatui.lab.bench.machine import load
from dynatui.lab.bench.paper.experiments import Extent, plan, rules
from dynatui.lab.bench.paper.records import (
    FORMAT,
    Header,
    LaneResult,
    PaperExperiment,
    PaperLane,
    PaperLog,
    PaperRequest,
    PromptResult,
    Resumed,
    blocks_of,
    header,
)
from dynatui.lab.bench.paper.report import PaperReport, report
from dynatui.lab.bench.protocol import Experiment, Sample, can_decode, endless, longest_first, measured
from dynatui.lab.bench.record_log import opened
from dynatui.session import Models


@dataclass(frozen=True)
class OnPaper:
    """Options of a measurement, before models are loaded."""

    models: Models
    text_sets: tuple[TextSet, ...]
    extent: Extent = field(default_factory=Extent)
    must_fit: bool = False
    """Whether it is an error if `extent.length` tokens do not fit in the context; otherwise, texts are shorter."""
    stops_at_eos: bool = False
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    log: Path | None = None
    """Path of the log, from which an interrupted measurement resumes; None keeps results in memory only."""

    def planned(self, extent: Extent) -> tuple[tuple[PaperLane, ...], tuple[PaperExperiment, ...]]:
        return plan(extent, self.text_sets, sampled=self.temperature > 0)


@dataclass(frozen=True)
class Prepared:
    engine: Engine
    log: PaperLog
    header: Header
    prompts: tuple[Sequence[Sequence[int]], ...]
    """Token ids of the prompts of each experiment."""
    attempts: int
    """Maximum number of attempts at a turn if other processes disturb the turn's timing."""


@contextmanager
def prepared(job: OnPaper, note: Note) -> Iterator[Prepared]:
    """Loaded models, opened log and encoded prompts; inside the context, other processes cannot write the log."""
    _, experiments = job.planned(job.extent)
    sampling = Sampling(job.temperature, 0, job.top_p)
    if job.log is not None:
        made_folder(job.log.parent)  # an unusable folder must be reported before the slow loading of models
    with opened(job.log, FORMAT) as log:
        engine = load_pair(**vars(job.models), report=note)
        engine = (engine if job.stops_at_eos else endless(engine)).sampled(job.seed, Schedule(sampling))
        pair, sets = engine.pair, {texts.name: texts for texts in job.text_sets}
        prompts = tuple(
            [_encoded(pair, sets[each.data_set], each, number) for number in range(each.prompts)]
            for each in experiments
        )
        longest = max(len(ids) for these in prompts for ids in these)
        extent = _fitting(job, pair.context - longest, note)
        lanes, experiments = job.planned(extent)
        request = PaperRequest(
            **pair_names(pair),
            seed=job.seed,
            temperature=job.temperature,
            top_p=job.top_p,
            stops_at_eos=job.stops_at_eos,
            warm_up=extent.warm_up,
            text_sets=tuple(needed(texts, experiments) for texts in job.text_sets),
            lanes=lanes,
            experiments=experiments,
        )
        first = header(pair, request, log, longest + extent.length, note)
        yield Prepared(engine, log, first, prompts, extent.attempts)


def measure_paper(job: OnPaper, note: Note, show: Show) -> Done[PaperReport]:
    """Measures all blocks that the log lacks; raises KeyboardInterrupt if interrupted before the log has a block."""
    with prepared(job, note) as ready:
        early = interrupted(show(measure(ready, note)))
        blocks = blocks_of(ready.log)
        if not blocks:
            raise KeyboardInterrupt
        return Done(report(ready.header, blocks, ready.log.of(Resumed)), early)


def measure(ready: Prepared, note: Note) -> Iterator[Progress]:
    """Measures all blocks that are not in the log; after each turn, yields the share of turns that are done.

    A block is written to the log before the progress of its last turn is yielded.
    """
    experiments = ready.header.request.experiments
    warm_up = ready.header.request.warm_up
    counts = [len(each.lanes) * (min(warm_up, each.prompts) + each.prompts * each.repeats) for each in experiments]
    for number, experiment in enumerate(experiments):
        for taken_turns, line in _experiment(ready, number, note):
            share = (sum(counts[:number]) + taken_turns) / sum(counts)
            yield Progress(f"{experiment.name}, {experiment.data_set}: {line}", share)
    yield Progress("measured", 1.0)


def _experiment(ready: Prepared, number: int, note: Note) -> Iterator[tuple[int, str]]:
    """Yields, after each turn, the number of finished turns and a progress line; nothing if the log has all blocks."""
    request, experiment, prompts = ready.header.request, ready.header.request.experiments[number], ready.prompts[number]
    done = {(each.repeat, each.prompt) for each in blocks_of(ready.log) if each.experiment == number}
    if len(done) == experiment.prompts * experiment.repeats:
        return
    taken_turns = len(done) * len(experiment.lanes)
    warm_up = longest_first(prompts)[: request.warm_up]
    able: list[Contender] = []
    for contender in contenders(ready.engine.pair, request, experiment):
        able += [contender] * can_decode(ready.engine, contender, warm_up, note)
        taken_turns += len(warm_up)
        yield taken_turns, f"warmed up {contender.name}"
    lanes = Experiment(
        able,
        prompts,
        warm_up,
        experiment.repeats,
        request.seed + number,
        lengths=experiment.lengths,
        attempts=ready.attempts,
    )
    samples: list[Sample] = []
    for sample in measured(ready.engine, lanes, lanes.turns(done)):
        taken_turns += 1
        samples.append(sample)
        if len(samples) == len(able):
            ready.log.add(_block(ready, number, samples))
            samples = []
        yield taken_turns, f"prompt {sample.prompt + 1} of {len(prompts)}"


def _block(ready: Prepared, number: int, samples: Sequence[Sample]) -> PromptResult:
    prompt = samples[0].prompt
    ids = ready.prompts[number][prompt]
    return PromptResult(
        experiment=number,
        prompt=prompt,
        repeat=samples[0].repeat,
        prompt_tokens=len(ids),
        turns=turns(ready.engine, ready.header.request, ids, samples),
        load=load(),
    )


def _fitting(job: OnPaper, room: int, note: Note) -> Extent:
    """Extent with texts of at most `room` tokens; if longer texts are requested and `must_fit` is set, raises
    ConfigError.
    """
    if job.extent.length <= room:
        return job.extent
    fits = f"the longest prompt leaves room for {room} new tokens in the models' context"
    if job.must_fit:
        raise ConfigError(f"--max-new-tokens is {job.extent.length}, but {fits}; give {room} or less")
    note(f"{fits}; {room} tokens are decoded instead of {job.extent.length}")
    return replace(job.extent, length=room)


def needed(texts: TextSet, experiments: Sequence[PaperExperiment]) -> TextSet:
    """Data set truncated to what the experiments read, so that the log does not contain entire books."""
    reading = [each for each in experiments if each.data_set == texts.name]
    count = max((each.prompts for each in reading), default=0)
    most = max((_characters(each) for each in reading), default=0)
    prompts = tuple(without_surrogates(text).strip()[:most] for text in texts.prompts[:count])
    return structs.replace(texts, prompts=prompts)


def _encoded(pair: Pair, texts: TextSet, experiment: PaperExperiment, number: int) -> list[int]:
    text = without_surrogates(texts.prompts[number]).strip()[: _characters(experiment)]
    in_tokens = experiment.unit == "tokens"
    try:
        ids = encode_prompt(
            pair.tokenizer, text, 1, sys.maxsize if in_tokens else pair.context, special=True, limit=pair.limit
        )
    except PromptError as error:
        raise PromptError(f"prompt {number + 1} of {texts.name}: {error}") from None
    if not in_tokens:
        return ids
    if experiment.most >= pair.context:
        raise PromptError(
            f"--prompt-tokens is {experiment.most}, but the models' context is {pair.context}; "
            f"give {pair.context - 1} or less"
        )
    return ids[: experiment.most]


def _characters(experiment: PaperExperiment) -> int:
    return experiment.most * (TOKEN_CHARACTERS if experiment.unit == "tokens" else 1)


def turns(
    engine: Engine, request: PaperRequest, prompt: Sequence[int], samples: Iterable[Sample]
) -> tuple[LaneResult, ...]:
    """Results of all lanes on one prompt, in the order of the request's lanes; `samples` has one sample per lane."""
    results = {sample.contender: sample for sample in samples}
    ar = results[BASELINE]
    judge = Judge(engine.pair.target, engine.gumbel_noise(), engine.scorer)
    found = tuple(
        LaneResult(
            lane=lane.name,
            at=_judged(judge, lane, prompt, results[lane.name].at, ar.at),
            kv_bytes=results[lane.name].kv_bytes,
            waited=results[lane.name].waited,
        )
        for lane in request.lanes
        if lane.name in results
    )
    engine.scorer.give_way()
    return found


def _judged(
    judge: Judge, lane: PaperLane, prompt: Sequence[int], at: Sequence[Tally], ar: Sequence[Tally]
) -> tuple[Figures, ...]:
    """Figures of a lane at each text length. One near-tie verdict on the first difference from the text of `ar` applies
    to all lengths that include this difference.
    """
    until = None if lane.own_text else WHOLE
    at_lengths = [figures(tally, plain, same_until=until) for tally, plain in zip(at, ar, strict=True)]
    index = at_lengths[-1].first_difference
    if index is None:
        return tuple(at_lengths)
    right, other = ar[-1].tokens, at[-1].tokens
    verdict = judge([*prompt, *right[:index]], (right[index], other[index]), by_module=lane.method not in METHODS)
    return tuple(
        each
        if each.first_difference is None
        else structs.replace(each, near_tie=verdict.near_tie, first_difference_gap=verdict.gap)
        for each in at_lengths
    )


def contenders(pair: Pair, request: PaperRequest, experiment: PaperExperiment) -> list[Contender]:
    """Contenders for an experiment's lanes, in the order of the lanes; lanes of transformers use the pair's modules."""
    lanes = [request.lane(name) for name in experiment.lanes]
    config = RunConfig(
        max_new_tokens=experiment.lengths[-1], seed=request.seed, temperature=request.temperature, top_p=request.top_p
    )
    foreign = baselines(pair, config) if any(lane.method not in METHODS for lane in lanes) else []

    def contender(lane: PaperLane) -> Contender:
        if lane.method not in METHODS:
            same = (one for one in foreign if one.group == lane.method and dict(one.settings) == lane.parameters)
            return replace(next(same), name=lane.name)
        given = rules(lane)
        return own(lane.name, lane.family, lane.method, config.with_rules(*given) if given else config)

    return list(map(contender, lanes))
