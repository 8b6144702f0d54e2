"""Complete measurement of `dynatui bench sampling`.

For each sampling setting, closed forms are evaluated first, and then texts are decoded. Records that the log already
contains are not measured again. After an interruption, the finished records are reported.

Closed forms are evaluated at roots, the positions in a text sampled from the target from which a draft tree is sampled.
At each root, all shapes share one set of sampled draft tokens (common random numbers), and the closed forms are
expectations over the random numbers of the verifier. All roots have equal weight.

All contenders decode each text, one after the other. A disturbed measurement is not repeated: random numbers change the
results more than disturbances do, and further texts reduce both effects. Every text and repeat has its own seed; with
equal seeds, coupled trees give the same text as plain decoding (`ar`). Shapes are chosen before decoding, by closed
forms and pass times, so that the choice does not bias the measured speeds.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from pathlib import Path

import numpy as np
from msgspec import structs

from decoder.draft.delayed_shape import DelayedTree
from decoder.engine import Engine
from decoder.errors import ConfigError, PromptError
from decoder.methods.delayed import SHIPPED, Delayed
from decoder.models.heads import require_whole_draft
from decoder.models.pair import Pair
from decoder.models.text import encode_prompts
from decoder.run.config import RunConfig
from decoder.run.loading import load_pair
from decoder.sampling.settings import SAMPLING, Sampling, Schedule
from decoder.selector.chooser import Chooser, files
from decoder.selector.policy import LOOKED_BACK, OneRoot, Root, read_info, read_selector
from decoder.verify.lossless.random_generator import PhiloxGenerator
from decoder.verify.lossless.verifiers import SOLVERS, acceptance_bound
from decoder.verify.names import Drafting
from dynatui.lab.bench import Done, Note, Progress, Show, interrupted, pair_names
from dynatui.lab.bench.contenders import BASELINE, Contender, decoded, own
from dynatui.lab.bench.labels import RootDraws, TextRoots
from dynatui.lab.bench.machine import load, repeated_costs
from dynatui.lab.bench.protocol import Experiment, measured, warmed_up
from dynatui.lab.bench.record_log import begun, opened
from dynatui.lab.bench.sampling.records import (
    BOUND,
    FORMAT,
    Contest,
    Decoded,
    Expected,
    Header,
    Realised,
    SamplingLog,
    SamplingRequest,
    TextKey,
    label,
    round_costs,
)
from dynatui.lab.bench.sampling.report import COUPLED_METHODS, SamplingReport, chosen, contender_name, report
from dynatui.session import Models

Prompts = Mapping[TextKey, Sequence[int]]


def measure_samplings(
    models: Models,
    request: SamplingRequest,
    note: Note,
    show: Show = iter,
    *,
    selector: str = SHIPPED,
    path: Path | None = None,
) -> Done[SamplingReport]:
    """Measures all texts that the log lacks; raises KeyboardInterrupt if it is interrupted before the first record.

    `request` lacks the names of the pair and the selectors. `selector` is the file of the network that selects tree
    shapes; `SHIPPED` means the file that dynatui has for the pair, if any. Without the file of a log, `path`, results
    are kept in memory only.
    """
    require_whole_draft("dynatui bench sampling", models.target, models.draft)
    if selector != SHIPPED:
        # an unusable selector must be reported before the slow loading of models
        read_info(Path(selector))
    with opened(path, FORMAT) as log:
        engine = load_pair(**vars(models), report=note)
        pair, selectors = engine.pair, _selectors(selector, engine.pair, note)
        hashes = (f"{name} {sha256(file.read_bytes()).hexdigest()}" for name, file in selectors.items())
        asked = structs.replace(request, **pair_names(pair), selectors=tuple(hashes))
        prompts = _encoded(pair, asked)
        if log.header is not None:
            note(f"resuming: the roots of {len(log.of(Expected))} of {len(prompts)} texts are evaluated already")
        tokens = max(map(len, prompts.values())) + asked.max_new_tokens
        complete, device = len(log.records) == asked.record_count, pair.target.device
        header = begun(log, asked, device, lambda: round_costs(repeated_costs(pair, tokens)), note, complete=complete)
        chooser = _chooser(selectors, pair, header) if asked.selecting() else None
        early = interrupted(show(_steps(engine, header, log, prompts, chooser, selector)))
        if not log.of(Expected):
            raise KeyboardInterrupt
        return Done(report(log, header, load_after=load()), early)


def _steps(
    engine: Engine, header: Header, log: SamplingLog, prompts: Prompts, chooser: Chooser | None, selector: str
) -> Iterator[Progress]:
    """Measures all records that the log lacks; after each record, yields the share of records in the log."""
    request = header.request
    for sampling, setting in enumerate(request.samplings):
        name = label(setting)
        these = {place: ids for place, ids in prompts.items() if place.sampling == sampling}
        known = {record.place for record in log.of(Expected)}
        for number, (place, ids) in enumerate(these.items(), 1):
            if place not in known:
                config = RunConfig((BASELINE,), request.max_new_tokens)
                text = decoded(seeded(engine, request, place), ids, BASELINE, config).tally.tokens
                log.add(expected(engine.pair, request, place, ids, list(text), chooser))
                yield _progress(log, request, f"{name}, roots evaluated in {number} of {len(these)} texts")
        those = {place: ids for place, ids in these.items() if place.prompt < request.decoded}
        shapes = chosen(header, [record for record in log.of(Expected) if record.place.sampling == sampling])
        done = frozenset((record.place, record.repeat) for record in log.of(Realised))
        before, total = sum(place in those for place, _ in done), len(those) * request.repeats
        lanes = contenders(request, setting, shapes, selector)
        for number, record in enumerate(realised(engine, request, those, lanes, done), before + 1):
            log.add(record)
            yield _progress(log, request, f"{name}, decoded {number} of {total} texts")


def _progress(log: SamplingLog, request: SamplingRequest, line: str) -> Progress:
    return Progress(line, len(log.records) / request.record_count)


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


DIGITS = 6


def expected(
    pair: Pair,
    request: SamplingRequest,
    place: TextKey,
    prompt: Sequence[int],
    text: Sequence[int],
    chooser: Chooser | None = None,
) -> Expected:
    """Means over the roots in `text`, which the target sampled after `prompt`; raises PromptError if it has no root."""
    most = DelayedTree(request.k, request.length, request.length)
    lengths = range(len(prompt), len(prompt) + len(text), request.roots_every)
    ends = [end for end in lengths if end >= LOOKED_BACK and end + most.depth <= pair.context]
    if not ends:
        raise PromptError(f"prompt {place.prompt + 1} of {place.task} is too short to draft from; give a longer prompt")
    sampling, generator = (
        request.samplings[place.sampling],
        PhiloxGenerator(request.seed, request.places().index(place)),
    )
    roots = TextRoots(chooser.pair if chooser else pair, sampling, most, ends[-1], generator)
    whole, at_roots = [*prompt, *text], []
    for end in ends:
        root, drawn = roots.advance(whole[:end]), roots.drawn()
        tokens = {verifier: _by_shape(request, verifier, drawn) for verifier in request.verifiers}
        selected = _selected(request, chooser, root, tokens) if chooser else {}
        at_roots.append((tokens, selected, *_along_path(request, drawn)))
    tokens_of, selected_of, distances, acceptances = zip(*at_roots, strict=True)
    return Expected(
        place=place,
        roots=len(ends),
        tokens={verifier: _mean([each[verifier] for each in tokens_of]) for verifier in request.verifiers},
        selected={name: _mean([[each[name]] for each in selected_of])[0] for name in selected_of[0]},
        distance=_mean(distances),
        acceptance={name: _mean([each[name] for each in acceptances]) for name in acceptances[0]},
    )


def _by_shape(request: SamplingRequest, verifier: str, drawn: RootDraws) -> list[float]:
    """Expected block efficiency of each shape, in the order of `SamplingRequest.shapes`."""
    by_shape = dict(zip(drawn.draws.shapes, drawn.expected_tokens(verifier).tolist(), strict=True))
    return [by_shape[shape] for shape in request.shapes(verifier)]


def _selected(
    request: SamplingRequest, chooser: Chooser, root: Root, tokens: Mapping[str, list[float]]
) -> dict[str, float]:
    """Expected block efficiency of the shape that the selector chooses at this root, by verifier."""
    names = [contest.verifier for contest in request.selecting()]
    return {name: tokens[name][request.shapes(name).index(chooser.best(root, name))] for name in names}


def _along_path(request: SamplingRequest, drawn: RootDraws) -> tuple[list[float], dict[str, list[float]]]:
    """L1 distance of draft and target probabilities, and acceptance of each solver, by depth along one drafted path."""
    nodes = drawn.draws.trunk[: request.length + 1]
    levels = [(drawn.target_probs[node], drawn.draft_probs[node]) for node in nodes]
    acceptance = {
        name: [SOLVERS[name].acceptance_rate(target, draft, request.k) for target, draft in levels]
        for name in SOLVERS
        if name in request.verifiers
    }
    acceptance[BOUND] = [acceptance_bound(target, draft, request.k) for target, draft in levels]
    return [float(np.abs(target - draft).sum()) for target, draft in levels], acceptance


def _mean(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(round(float(value), DIGITS) for value in np.mean(rows, axis=0))


DRAWING = "delayed"
"""Name of the method that decodes with sampled draft trees."""


def contenders(
    request: SamplingRequest, sampling: Sampling, shapes: Mapping[Contest, DelayedTree], selector: str = SHIPPED
) -> list[Contender]:
    """All contenders: plain decoding, coupled trees, and each verifier with its chosen shapes and with a selector."""
    drawn = {
        contender_name(contest, shape): Delayed(contest.verifier, Drafting.DELAYED, shape.k, shape.l1, shape.l2)
        for contest, shape in shapes.items()
    }
    for contest in request.selecting():
        # `first` is the shape of the first round; in all later rounds, the selector chooses the shape
        first = shapes[Contest(contest.verifier, Drafting.DELAYED)]
        rules = Delayed(contest.verifier, contest.drafting, first.k, first.l1, first.l2, selector)
        drawn[contender_name(contest, None)] = rules

    def lane(name: str, method: str, rules: Delayed | None = None) -> Contender:
        config = RunConfig((method,), request.max_new_tokens, request.seed).with_rules(SAMPLING, sampling)
        return own(name, method, method, config if rules is None else config.with_rules(DRAWING, rules))

    lanes = [lane(name, name) for name in (BASELINE, *COUPLED_METHODS)]
    return lanes + [lane(name, DRAWING, rules) for name, rules in drawn.items()]


def realised(
    engine: Engine,
    request: SamplingRequest,
    prompts: dict[TextKey, Sequence[int]],
    contenders: Sequence[Contender],
    done: frozenset[tuple[TextKey, int]],
) -> Iterator[Realised]:
    """Decodes the texts of one sampling setting that are not in the log; yields a record for each text and repeat.

    `done` has the pairs (place, repeat) of the texts in the log.
    """
    places, texts = list(prompts), list(prompts.values())
    plan = Experiment(contenders, texts, texts[:1], request.repeats, request.seed, attempts=1)
    left = plan.turns({(repeat, places.index(place)) for place, repeat in done if place in prompts})
    if left:
        warmed_up(seeded(engine, request, places[left[0].prompt], left[0].repeat), plan, lambda _: None)
    for (number, repeat), turns in groupby(left, key=lambda turn: (turn.prompt, turn.repeat)):
        place = places[number]
        decoded = tuple(
            Decoded(
                contender=sample.contender,
                tokens=sample.tally.timed_tokens,
                rounds=sample.tally.rounds,
                decode_s=sample.tally.decode_s,
                waited=sample.waited,
            )
            for sample in measured(seeded(engine, request, place, repeat), plan, turns)
        )
        yield Realised(place=place, repeat=repeat, turns=decoded)


def seeded(engine: Engine, request: SamplingRequest, place: TextKey, repeat: int = 0) -> Engine:
    """Engine with the text's sampling setting, and a seed that no other text or repeat has."""
    number = repeat * len(request.places()) + request.places().index(place)
    return engine.sampled(request.seed + number, Schedule(request.samplings[place.sampling]))
