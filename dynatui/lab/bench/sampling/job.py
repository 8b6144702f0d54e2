"""Complete measurement of `dynatui bench sampling`.

For each sampling setting, closed forms are evaluated first, and then texts are decoded. Records that the log already
contains are not measured again. After an interruption, the finished records are reported.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from decoder.engine import Engine
from decoder.errors import ConfigError, PromptError
from decoder.methods.delayed import SHIPPED
from decoder.models.chat import encode_prompts
from decoder.models.drafts import require_whole_draft
from decoder.models.pair import Pair
from decoder.prompts.prompt import AnyPrompt
from decoder.run.config import RunConfig
from decoder.run.loading import load_pair
from decoder.sampling.settings import Sampling, Schedule
from decoder.selector.chooser import Chooser, files
from decoder.selector.one_root import OneRoot
from decoder.selector.stored import read, read_info
from dynatui.lab.bench.contenders import BASELINE, decoded
from dynatui.lab.bench.machine import load
from dynatui.lab.bench.on_pair import Note, OnPair, pair_names
from dynatui.lab.bench.pass_costs import repeated_costs
from dynatui.lab.bench.progress import Done, Progress, Show, interrupted
from dynatui.lab.bench.record_log import header_now, opened
from dynatui.lab.bench.sampling.costs import round_costs
from dynatui.lab.bench.sampling.expected import expected
from dynatui.lab.bench.sampling.log import FORMAT, Expected, Header, Realised, SamplingLog, holds_all
from dynatui.lab.bench.sampling.realised import chosen, contenders, realised, seeded
from dynatui.lab.bench.sampling.report import SamplingReport, for_speed, report
from dynatui.lab.bench.sampling.request import Place, SamplingRequest, label
from dynatui.lab.bench.sampling.tasks import Task

Prompts = Mapping[Place, Sequence[int]]


@dataclass(frozen=True)
class OnSamplings(OnPair):
    """Options of a measurement, before models are loaded; the request adds the names of the loaded pair."""

    tasks: tuple[Task, ...]
    samplings: tuple[Sampling, ...]
    verifiers: tuple[str, ...]
    k: int = 4
    length: int = 8
    max_new_tokens: int = 64
    roots_every: int = 16
    decoded: int = 1
    repeats: int = 1
    seed: int = 0
    selector: str = SHIPPED
    """File of the network that selects tree shapes; `SHIPPED` means the file that dynatui has for the pair, if any."""
    log: Path | None = None
    """Path of the log, from which an interrupted measurement resumes."""

    def request(
        self, pair: Pair | None = None, selectors: Mapping[str, Path] = MappingProxyType({})
    ) -> SamplingRequest:
        """Request of the measurement for a loaded pair; if `pair` is None, the request only serves to check options."""
        return SamplingRequest(
            **pair_names(pair),
            seed=self.seed,
            samplings=self.samplings,
            tasks={task.name: task.prompts for task in self.tasks},
            verifiers=self.verifiers,
            k=self.k,
            length=self.length,
            max_new_tokens=self.max_new_tokens,
            roots_every=self.roots_every,
            decoded=self.decoded,
            repeats=self.repeats,
            selectors=tuple(f"{name} {sha256(path.read_bytes()).hexdigest()}" for name, path in selectors.items()),
        )


def measure_samplings(job: OnSamplings, note: Note, show: Show = iter) -> Done[SamplingReport]:
    """Measures all texts that the log lacks; `show` displays the progress.

    Raises:
        DecoderError: An option is out of bounds, or a prompt does not fit into the context. The log belongs to another
            measurement, or is locked by another process. The models cannot be loaded, or the device fails.
        KeyboardInterrupt: The measurement was interrupted before the first record was complete.
    """
    require_whole_draft("dynatui bench sampling", job.target, job.draft)
    job.request()
    if job.selector != SHIPPED:
        # an unusable selector must be reported before the slow loading of models
        read_info(Path(job.selector))
    with opened(job.log, FORMAT) as log:
        return _measured(job, log, note, show)


def _measured(job: OnSamplings, log: SamplingLog, note: Note, show: Show) -> Done[SamplingReport]:
    engine = load_pair(**job.pair_options, report=note)
    selectors = _selectors(job.selector, engine.pair, note)
    request = job.request(engine.pair, selectors)
    prompts = _encoded(engine.pair, request)
    header = _begun(engine, request, log, max(map(len, prompts.values())), note)
    chooser = _chooser(selectors, engine.pair, header) if request.selecting() else None
    early = interrupted(show(_steps(engine, chooser, header, log, prompts, job.selector)))
    if not log.of(Expected):
        raise KeyboardInterrupt
    return Done(report(log, header, load_after=load()), early)


def _steps(
    engine: Engine, chooser: Chooser | None, header: Header, log: SamplingLog, prompts: Prompts, selector: str
) -> Iterator[Progress]:
    """Measures all records that the log lacks; after each record, yields the share of records in the log."""
    request = header.request
    for number, sampling in enumerate(request.samplings):
        these = {place: ids for place, ids in prompts.items() if place.sampling == number}
        expecting = _expect(engine, chooser, header, log, these)
        for line in chain(expecting, _decode(engine, header, log, these, selector)):
            yield Progress(f"{label(sampling)}, {line}", len(log.records) / request.record_count)


def _begun(engine: Engine, request: SamplingRequest, log: SamplingLog, rows: int, note: Note) -> Header:
    """Header of the log; for a new log, forward passes are timed and the header is written."""
    pair, tokens = engine.pair, rows + request.max_new_tokens
    if log.header is not None:
        note(
            f"resuming: the roots of {len(log.of(Expected))} of {len(prompts_of(request))} texts are evaluated already"
        )
    now = header_now(log, request, pair.target.device, lambda: round_costs(repeated_costs(pair, tokens)), note)
    return log.begin(now, complete=holds_all(log, request))


def prompts_of(request: SamplingRequest) -> dict[Place, AnyPrompt]:
    """Prompts of all texts, by place."""
    return {place: request.tasks[place.task][place.prompt] for place in request.places()}


def _selectors(file: str, pair: Pair, note: Note) -> dict[str, Path]:
    """Selector files by verifier; if dynatui has no selector for this pair, the result is empty and a note says so."""
    if file != SHIPPED:
        return files(file, pair.observed())
    try:
        return files("", pair.observed())
    except ConfigError as error:
        note(f"shapes are compared without a selector: {error}")
        return {}


def _chooser(selectors: Mapping[str, Path], pair: Pair, header: Header) -> Chooser:
    policies = {verifier: OneRoot(read(path)[0]) for verifier, path in selectors.items()}
    costs = header.costs
    # the schedule is not used, since each root has its own sampling setting
    return Chooser(policies, pair.observed(), Schedule(), lambda: (costs.level_s[1], costs.verify_s[1]))


def _expect(
    engine: Engine, chooser: Chooser | None, header: Header, log: SamplingLog, prompts: Prompts
) -> Iterator[str]:
    """Evaluates the closed forms on the texts of one sampling setting and logs the results; yields the progress."""
    done = {record.place for record in log.of(Expected)}
    for number, (place, ids) in enumerate(prompts.items(), 1):
        if place not in done:
            config = RunConfig((BASELINE,), header.request.max_new_tokens)
            text = decoded(seeded(engine, header.request, place), ids, BASELINE, config).tally.tokens
            log.add(expected(engine.pair, header.request, place, ids, list(text), chooser))
            yield f"roots evaluated in {number} of {len(prompts)} texts"


def _decode(engine: Engine, header: Header, log: SamplingLog, prompts: Prompts, selector: str) -> Iterator[str]:
    """Decodes the texts of one sampling setting with all contenders and logs the results; yields the progress."""
    request = header.request
    those = {place: ids for place, ids in prompts.items() if request.decodes(place)}
    if not those:
        return
    number = next(iter(those)).sampling
    records = [record for record in log.of(Expected) if record.place.sampling == number]
    all_ = contenders(request, request.samplings[number], chosen(request, records, for_speed(header)), selector)
    done = frozenset((record.place, record.repeat) for record in log.of(Realised))
    before, total = sum(place in those for place, _ in done), len(those) * request.repeats
    for count, record in enumerate(realised(engine, request, those, all_, done), before + 1):
        log.add(record)
        yield f"decoded {count} of {total} texts"


def _encoded(pair: Pair, request: SamplingRequest) -> dict[Place, list[int]]:
    """Token ids of all prompts, by place; the message of an error names the prompt."""
    more = request.max_new_tokens + 2 * request.length
    token_ids = {}
    for place, prompt in prompts_of(request).items():
        try:
            (token_ids[place],) = encode_prompts(pair.tokenizer, [prompt], more, pair.context, limit=pair.limit)
        except PromptError as error:
            raise PromptError(f"prompt {place.prompt + 1} of {place.task}: {error}") from None
    return token_ids
