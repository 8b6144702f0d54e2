"""Complete measurement of `dynatui bench sampling`.

For each sampling setting, closed forms are evaluated first, and then texts are decoded. Records that the log already
contains are not measured again. After an interruption, the finished records are reported.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path

from msgspec import structs

from decoder.engine import Engine
from decoder.errors import ConfigError, PromptError
from decoder.methods.delayed import SHIPPED
from decoder.models.heads import require_whole_draft
from decoder.models.pair import Pair
from decoder.models.text import encode_prompts
from decoder.run.config import RunConfig
from decoder.run.loading import load_pair
from decoder.sampling.settings import Schedule
from decoder.selector.chooser import Chooser, files
from decoder.selector.policy import OneRoot
from decoder.selector.stored import read_info, read_selector
from dynatui.lab.bench.contenders import BASELINE, decoded
from dynatui.lab.bench.machine import load
from dynatui.lab.bench.on_pair import Done, Note, OnPair, Progress, Show, interrupted, pair_names
from dynatui.lab.bench.pass_costs import repeated_costs
from dynatui.lab.bench.record_log import header_now, opened
from dynatui.lab.bench.sampling.best import chosen
from dynatui.lab.bench.sampling.expected import expected
from dynatui.lab.bench.sampling.log import FORMAT, Expected, Header, Realised, SamplingLog, holds_all, round_costs
from dynatui.lab.bench.sampling.realised import contenders, realised, seeded
from dynatui.lab.bench.sampling.report import SamplingReport, report
from dynatui.lab.bench.sampling.request import SamplingRequest, TextKey, label

Prompts = Mapping[TextKey, Sequence[int]]


@dataclass(frozen=True)
class OnSamplings(OnPair):
    """Options of a measurement, before models are loaded."""

    request: SamplingRequest
    """The request, without the names of the pair and the selectors."""
    selector: str = SHIPPED
    """File of the network that selects tree shapes; `SHIPPED` means the file that dynatui has for the pair, if any."""
    log: Path | None = None


@dataclass(frozen=True)
class _Measurement:
    """Loaded models, the log, and the selector of tree shapes."""

    engine: Engine
    header: Header
    log: SamplingLog
    chooser: Chooser | None
    selector: str

    def expect(self, prompts: Prompts) -> Iterator[str]:
        """Samples the texts of one sampling setting and evaluates the closed forms on them; yields the progress."""
        request, done = self.header.request, {record.place for record in self.log.of(Expected)}
        for number, (place, ids) in enumerate(prompts.items(), 1):
            if place not in done:
                config = RunConfig((BASELINE,), request.max_new_tokens)
                text = decoded(seeded(self.engine, request, place), ids, BASELINE, config).tally.tokens
                self.log.add(expected(self.engine.pair, request, place, ids, list(text), self.chooser))
                yield f"roots evaluated in {number} of {len(prompts)} texts"

    def decode(self, prompts: Prompts) -> Iterator[str]:
        """Decodes the texts of one sampling setting with all contenders; yields the progress."""
        request = self.header.request
        those = {place: ids for place, ids in prompts.items() if request.decodes(place)}
        if not those:
            return
        number = next(iter(those)).sampling
        records = [record for record in self.log.of(Expected) if record.place.sampling == number]
        lanes = contenders(request, request.samplings[number], chosen(self.header, records), self.selector)
        done = frozenset((record.place, record.repeat) for record in self.log.of(Realised))
        before, total = sum(place in those for place, _ in done), len(those) * request.repeats
        for count, record in enumerate(realised(self.engine, request, those, lanes, done), before + 1):
            self.log.add(record)
            yield f"decoded {count} of {total} texts"


def measure_samplings(job: OnSamplings, note: Note, show: Show = iter) -> Done[SamplingReport]:
    """Measures all texts that the log lacks; raises KeyboardInterrupt if it is interrupted before the first record."""
    require_whole_draft("dynatui bench sampling", job.target, job.draft)
    if job.selector != SHIPPED:
        # an unusable selector must be reported before the slow loading of models
        read_info(Path(job.selector))
    with opened(job.log, FORMAT) as log:
        engine = load_pair(**job.pair_options, report=note)
        selectors = _selectors(job.selector, engine.pair, note)
        hashes = (f"{name} {sha256(path.read_bytes()).hexdigest()}" for name, path in selectors.items())
        request = structs.replace(job.request, **pair_names(engine.pair), selectors=tuple(hashes))
        prompts = _encoded(engine.pair, request)
        header = _begun(engine.pair, request, log, max(map(len, prompts.values())), note)
        chooser = _chooser(selectors, engine.pair, header) if request.selecting() else None
        early = interrupted(show(_steps(_Measurement(engine, header, log, chooser, job.selector), prompts)))
        if not log.of(Expected):
            raise KeyboardInterrupt
        return Done(report(log, header, load_after=load()), early)


def _steps(measurement: _Measurement, prompts: Prompts) -> Iterator[Progress]:
    """Measures all records that the log lacks; after each record, yields the share of records in the log."""
    request = measurement.header.request
    for number, sampling in enumerate(request.samplings):
        these = {place: ids for place, ids in prompts.items() if place.sampling == number}
        for line in chain(measurement.expect(these), measurement.decode(these)):
            yield Progress(f"{label(sampling)}, {line}", len(measurement.log.records) / request.record_count)


def _begun(pair: Pair, request: SamplingRequest, log: SamplingLog, rows: int, note: Note) -> Header:
    """Header of the log; for a new log, forward passes are timed and the header is written."""
    if log.header is not None:
        note(f"resuming: the roots of {len(log.of(Expected))} of {len(request.places())} texts are evaluated already")
    tokens = rows + request.max_new_tokens
    now = header_now(log, request, pair.target.device, lambda: round_costs(repeated_costs(pair, tokens)), note)
    return log.begin(now, complete=holds_all(log, request))


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
    policies = {verifier: OneRoot(read_selector(path)[0]) for verifier, path in selectors.items()}
    costs = header.costs
    # the schedule is not used, since each root has its own sampling setting
    return Chooser(policies, pair.observed(), Schedule(), lambda: (costs.level_s[1], costs.verify_s[1]))


def _encoded(pair: Pair, request: SamplingRequest) -> dict[TextKey, list[int]]:
    """Token ids of all prompts, by place; the message of an error names the prompt."""
    more = request.max_new_tokens + 2 * request.length
    token_ids = {}
    for place in request.places():
        prompt = request.tasks[place.task][place.prompt]
        try:
            (token_ids[place],) = encode_prompts(pair.tokenizer, [prompt], more, pair.context, limit=pair.limit)
        except PromptError as error:
            raise PromptError(f"prompt {place.prompt + 1} of {place.task}: {error}") from None
    return token_ids
