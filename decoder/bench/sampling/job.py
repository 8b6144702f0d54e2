"""A comparison from beginning to end: setting by setting, first what closed forms expect, then real rounds.

What is in the log already is not measured again. An interruption ends it early; what was measured until then is
reported.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from decoder.bench.contenders import BASELINE, decoded
from decoder.bench.machine import ComputingClock, examined, load
from decoder.bench.on_pair import OnPair, pair_names
from decoder.bench.protocol import DISTURBED
from decoder.bench.record_log import alone
from decoder.bench.sampling.asked import Asked, Place, label
from decoder.bench.sampling.costs import round_costs
from decoder.bench.sampling.expected import expected
from decoder.bench.sampling.log import REMEDY, Begun, Log
from decoder.bench.sampling.realised import chosen, contenders, realised, seeded
from decoder.bench.sampling.report import SamplingReport, for_speed, report
from decoder.bench.sampling.tasks import Task
from decoder.config import RunConfig
from decoder.draft.tree_size.cost_profile import measure_costs
from decoder.engine import Engine
from decoder.errors import ConfigError, PromptError
from decoder.loading import load_pair
from decoder.methods.delayed import SHIPPED
from decoder.models.drafts import require_whole_draft
from decoder.models.pair import Pair
from decoder.models.text import encode_prompt, without_surrogates
from decoder.sampling.settings import Sampling, Schedule
from decoder.selector.chooser import Chooser, files
from decoder.selector.one_root import OneRoot
from decoder.selector.stored import about, read

COST_SERIES = 4
"""Times that the costs of forward passes are measured, two seconds each."""
Note = Callable[[str], None]
Prompts = Mapping[Place, Sequence[int]]


@dataclass(frozen=True)
class OnSamplings(OnPair):
    """What to measure; see `Asked`, to which the loaded pair adds its names."""

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
    """The file of what chooses shapes; `SHIPPED`: what comes with dynatui for the pair, if anything does."""
    log: Path | None = None
    """Where records are kept, and from where a stopped measurement goes on."""

    def asked(self, pair: Pair | None = None, selectors: Mapping[str, Path] = MappingProxyType({})) -> Asked:
        """The same with a loaded pair; without, it is only checked."""
        return Asked(
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


def measure_samplings(job: OnSamplings, note: Note) -> tuple[SamplingReport, bool]:
    """Measures; returns the report, and whether it was interrupted.

    Raises:
        DecoderError: What is asked for is out of bounds, a prompt does not fit, the log is another measurement's or
            held by another process, or models or device fail.
        KeyboardInterrupt: Nothing was complete yet when it came.
    """
    require_whole_draft("dynatui bench sampling", job.target, job.draft)
    job.asked()
    if job.selector != SHIPPED:
        # What is no selector at all is refused before models are loaded.
        about(Path(job.selector))
    with alone(job.log, REMEDY):
        return _measured(job, Log(job.log), note)


def _measured(job: OnSamplings, log: Log, note: Note) -> tuple[SamplingReport, bool]:
    """The report of a log to which all is added that is left."""
    engine = load_pair(**job.pair_options, report=note)
    selectors = _selectors(job.selector, engine.pair, note)
    asked = job.asked(engine.pair, selectors)
    prompts = _encoded(engine.pair, asked)
    begun = _begun(engine, asked, log, max(map(len, prompts.values())), note)
    chooser = _chooser(selectors, engine.pair, begun) if asked.selecting() else None
    interrupted = False
    try:
        for number, sampling in enumerate(asked.samplings):
            these = {place: ids for place, ids in prompts.items() if place.sampling == number}
            _expect(engine, chooser, begun, log, these, _progress(note, f"{label(sampling)}, roots of", len(these)))
            _decode(engine, begun, log, these, job.selector, note)
    except KeyboardInterrupt:
        interrupted = True
    if not log.expected:
        raise KeyboardInterrupt
    return report(log, begun, load_after=load(), disturbed_above=DISTURBED), interrupted


def _begun(engine: Engine, asked: Asked, log: Log, rows: int, note: Note) -> Begun:
    """The log's first line, which is written now if there is none; what is missing is measured on such a machine."""
    if log.begun is None:
        note("measuring forward passes")
        clock = ComputingClock(engine.pair.target.device)
        series = [measure_costs(engine.pair, rows + asked.max_new_tokens, clock) for _ in range(COST_SERIES)]
        costs = round_costs(series)
    else:
        costs = log.begun.costs
        note(f"going on: {len(log.expected)} of {len(prompts_of(asked))} texts have their roots")
    started = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    here = examined(engine.pair.target.device)
    begun = log.begin(Begun(started_at=started, machine=here, asked=asked, costs=costs))
    if not log.holds_all(asked):
        log.require_machine(here)
    return begun


def prompts_of(asked: Asked) -> dict[Place, str]:
    """The prompt of every text."""
    return {place: asked.tasks[place.task][place.prompt] for place in asked.places()}


def _selectors(file: str, pair: Pair, note: Note) -> dict[str, Path]:
    """By verifier; none where none was named and none comes with dynatui for this pair, which is noted."""
    if file != SHIPPED:
        return files(file, pair.observed())
    try:
        return files("", pair.observed())
    except ConfigError as error:
        note(f"shapes are compared without a selector: {error}")
        return {}


def _chooser(selectors: Mapping[str, Path], pair: Pair, begun: Begun) -> Chooser:
    policies = {verifier: OneRoot(read(path)[0]) for verifier, path in selectors.items()}
    costs = begun.costs
    # It is asked for shapes at roots that say by themselves how they were sampled.
    return Chooser(policies, pair.observed(), Schedule(), lambda: (costs.level_s[1], costs.verify_s[1]))


def _expect(
    engine: Engine, chooser: Chooser | None, begun: Begun, log: Log, prompts: Prompts, note: Callable[[int], None]
) -> None:
    """Closed forms on the texts of one setting."""
    done = {record.place for record in log.expected}
    for number, (place, ids) in enumerate(prompts.items()):
        if place not in done:
            config = RunConfig((BASELINE,), begun.asked.max_new_tokens)
            text = decoded(seeded(engine, begun.asked, place), ids, BASELINE, config).tally.tokens
            log.add(expected(engine.pair, begun.asked, place, ids, list(text), chooser))
            note(number + 1)


def _decode(engine: Engine, begun: Begun, log: Log, prompts: Prompts, selector: str, note: Note) -> None:
    """Real rounds on the texts of one setting."""
    asked = begun.asked
    those = {place: ids for place, ids in prompts.items() if asked.decodes(place)}
    if not those:
        return
    number = next(iter(those)).sampling
    records = [record for record in log.expected if record.place.sampling == number]
    all_ = contenders(asked, asked.samplings[number], chosen(asked, records, for_speed(begun)), selector)
    done = frozenset((record.place, record.repeat) for record in log.realised)
    said = _progress(note, f"{label(asked.samplings[number])}, decoded", len(those) * asked.repeats)
    before = sum(place in those for place, _ in done)
    for count, found in enumerate(realised(engine, asked, those, all_, done), before + 1):
        log.add(found)
        said(count)


def _progress(note: Note, what: str, total: int) -> Callable[[int], None]:
    """Tells how far it has come and what is left, at the pace of now."""
    started = time.monotonic()
    first: list[int] = []

    def say(done: int) -> None:
        first.append(done - 1)
        pace = (time.monotonic() - started) / (done - first[0])
        note(f"{what} {done} of {total} texts, {pace * (total - done) / 60:.0f} min left of them")

    return say


def _encoded(pair: Pair, asked: Asked) -> dict[Place, list[int]]:
    """Token ids by place; an error says which prompt."""
    more = asked.max_new_tokens + 2 * asked.length
    found = {}
    for place, text in prompts_of(asked).items():
        try:
            ids = encode_prompt(pair.tokenizer, without_surrogates(text), more, pair.context, special=True)
        except PromptError as error:
            raise PromptError(f"prompt {place.prompt + 1} of {place.task}: {error}") from None
        found[place] = ids
    return found
