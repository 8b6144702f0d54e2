"""Race: several methods decode one prompt, on one thread, with equal decode time; all results are events.

The method with the least decode time always decodes the next round, so faster methods are visibly ahead. A method's
clock runs only while the method decodes. Knows neither screens nor files.
"""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

import msgspec

from decoder.analysis.metrics import Race, differs_by_design
from decoder.analysis.stalls import RECENT, stalled_s
from decoder.engine import Engine
from decoder.errors import DeviceError, LogitsError
from decoder.events import LOST, End, Event, Figures, Knob, Limit, Round, Run, Start, Summary
from decoder.forward.near_tie import Judge
from decoder.knobs import KnobName, RulesName
from decoder.methods import METHODS, chosen, require_knobs, require_model_free, require_shared_tokens
from decoder.methods.method import Method
from decoder.models.pair import Pair
from decoder.models.text import Pieces, TextStream
from decoder.prompts.prompt import AnyPrompt
from decoder.run.config import RunConfig
from decoder.run.decoding_path import decoding_path
from decoder.run.fitting import Fed, encoded
from decoder.run.text_end import within
from decoder.sampling.settings import SAMPLING, Schedule
from decoder.session.knob_state import applied
from decoder.session.protocol import AtStage, Outcome, Session
from decoder.session.steering import SlowMotion, Stage, StageName, Steering, Turn, hold, takes_step
from decoder.system.cpu_threads import WarmThreads, quick_switches
from decoder.system.device import make_current, memory_is_full, peak_bytes, release_memory, require_working
from decoder.system.waiting import ProcessorWaits
from decoder.tensor_parallel.check import require_partial_target
from decoder.tree import TokenTree
from decoder.tree_rules import MOST_NODES, Rules
from decoder.version import VERSION

_ON_HOST = 1
"""Maximum number of tokens that a method has chosen but not yet reported in an event, if the host drives its rounds."""
_ON_DEVICE = MOST_NODES + 1
"""The same maximum if rounds run on the device, where the next round is already queued."""

Resamplings = dict[tuple[int, KnobName], Turn]
"""The user's changes of temperature and top-p. Each key is (first position to which the change applies, knob)."""


@dataclass
class Lane:
    """State of one method in the race."""

    method: Method
    session: Session
    stream: TextStream
    longest: int
    """Maximum number of tokens that the method appends to the prompt."""
    decode_s: float = 0.0
    stalled_s: float = 0.0
    """Part of the decode time that was lost to stalls, in seconds."""
    latest_s: float = 0.0
    """Duration of the latest round, without stalls, in seconds."""
    usual_s: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    """Durations of the method's latest rounds that did not stall, in seconds."""
    rounds: int = 0
    generated: int = 0
    ended: bool = False
    resamplings: int = 0
    """Number of changes of temperature and top-p that this method has reported in events."""

    @property
    def name(self) -> str:
        """Name of the method."""
        return self.method.name

    def step(self, turns: tuple[Turn, ...], at_stage: AtStage, waits: ProcessorWaits) -> Outcome:
        """Decodes one more round, and measures how long it waited for a processor, and stalled."""
        waits.begin()
        outcome = self.session.step(_turns_of(self.method.rules, turns), at_stage)
        outcome.waited_s, lost_s = waits.end(outcome.round_s)
        outcome.stalled_s = stalled_s(outcome.round_s, lost_s, self.usual_s)
        if outcome.round_s and not outcome.stalled_s:
            self.usual_s.append(outcome.round_s)
        return outcome

    def count(self, outcome: Outcome) -> None:
        """Adds a decoded round to the totals."""
        self.latest_s = outcome.round_s - outcome.stalled_s
        self.decode_s += outcome.round_s
        self.stalled_s += outcome.stalled_s
        self.rounds += 1
        self.generated += len(outcome.committed)

    def resampled(self, turns: Resamplings, position: int) -> list[Turn]:
        """Changes of temperature and top-p that apply to the next token, at `position`, and are not reported yet. The
        result is always empty for method `hf`, since transformers keeps its initial settings.
        """
        if self.method.by_module:
            return []
        unreported = list(turns.items())[self.resamplings :]
        in_force = [turn for (start, _), turn in unreported if start <= position]
        self.resamplings += len(in_force)
        return in_force

    def knob_events(self, turns: Iterable[Turn]) -> Iterator[Knob]:
        """Events that report knob changes, which take effect in the method's next round."""
        for turn in turns:
            assert turn.old is not None, "a reported knob change must have an old value"  # noqa: S101 - a programmer's mistake
            yield Knob(
                method=self.name,
                round=self.rounds,
                name=turn.name,
                old=turn.old,
                new=turn.value,
                source="user" if turn.number else "history",
                turn=turn.number,
            )


def decode(
    engine: Engine, prompt: AnyPrompt, config: RunConfig | None = None, steering: Steering | None = None
) -> Iterator[Event]:
    """Decodes one prompt with every method of `config`; yields events, from `Run` to `Summary`.

    Args:
        engine: A pair from `load_pair`.
        prompt: Plain text, a user's message if `config.chat` is set, or a conversation.
        config: Methods and their parameters.
        steering: Lets another thread turn knobs, pause, step, slow down and stop the run.

    Raises:
        PromptError: The prompt is empty, does not fit into the context, or has a token that the target does not know.
        ConfigError: A method is unknown or needs a draft model that the pair does not have, or the tokenizer has no
            chat template for `config.chat`.
        DeviceError: The device's memory is full.

    A method whose target computes NaN or infinite logits ends with an `End` event that has the error; the others go on.
    """
    config, pair = config or RunConfig(), engine.pair
    methods, ranks = chosen(config.methods), pair.target.ranks
    if pair.draft is None:
        require_model_free(config.methods)
    if pair.translation:
        require_shared_tokens(config.methods, pair.draft_name)
    if ranks:
        require_partial_target(methods)
    fed = encoded(pair, prompt, config)
    engine = engine.sampled(config.seed, Schedule(config.sampling), draft_knows_noise=config.draft_knows_noise)
    make_current(pair.target.device)
    require_working(pair.target.device)
    # Decoding is slower if a thread waits for a busy core, and the machine's load changes between prompts. So the
    # number of threads is chosen again for each prompt.
    engine.settle_threads()
    started = time.perf_counter()
    race = Race()
    with quick_switches(pair.target.device):
        for event in _events(engine, fed, config, methods, steering or Steering(), started):
            race = race.apply(event)
            yield event
    yield Summary(methods=_judged(engine, fed.ids, race), peak_bytes_by_rank=ranks.peak_bytes() if ranks else [])


def _events(
    engine: Engine,
    fed: Fed,
    config: RunConfig,
    methods: Sequence[Method],
    steering: Steering,
    started: float,
) -> Iterator[Event]:
    pair, prompt_ids = engine.pair, fed.ids
    release_memory(pair.target.device)
    yield _run_event(engine, fed, config, methods)
    pieces = Pieces(pair.tokenizer)
    lanes: list[Lane] = []
    waits = ProcessorWaits()
    resamplings: Resamplings = {}
    turns_seen, ahead = 0, len(prompt_ids) + (_ON_DEVICE if engine.slots else _ON_HOST)
    unopened, current = deque(methods), methods[0].name
    try:
        awake, motion, idle = (
            WarmThreads(needed=pair.target.by_torch_threads),
            SlowMotion(steering),
            partial(_prepare, lanes, steering),
        )
        begin = partial(_begun, engine, prompt_ids, config, unopened, lanes, steering)
        while unopened or not all(lane.ended for lane in lanes):
            current = unopened[0].name if unopened else current
            yield from begin()
            hold(steering, idle=idle)
            yield from begin()
            lane = _next(lanes)
            if steering.stopped or lane is None:
                break
            turns = steering.turns
            require_knobs(turn.name for turn in turns[turns_seen:])
            furthest = max(lane.generated for lane in lanes)
            _resample(engine.sampling, resamplings, turns[turns_seen:], ahead + furthest)
            turns_seen = len(turns)
            current = lane.name
            yield from lane.knob_events(lane.resampled(resamplings, len(prompt_ids) + lane.generated))
            step = partial(lane.step, turns, _holding(steering, lane, lanes, pieces, started), waits)
            decoded = yield from _decoded(lane, partial(awake.run, step), pieces, started, pair)
            watched = _watched(steering, lanes)
            if (lane is watched or watched.ended) and takes_step(steering):
                hold(steering, Stage("committed", decoded) if decoded and lane is watched else None)
            motion.after(lane.latest_s, idle)
    except Exception as error:
        yield End(method=current, reason="error", error=str(error) or type(error).__name__)
        require_working(pair.target.device)
        if memory_is_full(error):
            raise DeviceError(
                f"the memory of {pair.device} is full; choose smaller models, --dtype float16, fewer --methods or "
                "fewer --max-new-tokens"
            ) from error
        raise
    finally:
        waits.close()
        for lane in lanes:
            lane.session.close()
    for lane in lanes:
        if not lane.ended:
            yield End(method=lane.name, reason="stopped", peak_bytes=peak_bytes(pair.target.device))


def _run_event(engine: Engine, fed: Fed, config: RunConfig, methods: Sequence[Method]) -> Run:
    path, pair = decoding_path(engine), engine.pair
    return Run(
        version=VERSION,
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        target=pair.target_name,
        draft=pair.draft_name,
        device=pair.device,
        dtype=pair.dtype,
        draft_dtype=pair.draft_dtype,
        exact=engine.exact,
        path=path.name,
        path_reason=path.reason,
        ranks=list(pair.target.ranks.devices) if pair.target.ranks else [],
        seed=config.seed,
        temperature=config.sampling.temperature,
        top_k=config.sampling.top_k,
        top_p=config.sampling.top_p,
        verifier=config.verifier,
        drafting=config.drafting,
        prompt=fed.text,
        category=fed.category or msgspec.UNSET,
        prompt_tokens=fed.ids,
        repeated_start=fed.repeated_start or msgspec.UNSET,
        max_new_tokens=config.max_new_tokens,
        methods={method.name: method.parameters(config) for method in methods},
    )


def _turns_of(rules: RulesName | None, turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """The user's knob changes that may concern the parameter set `rules`."""
    return tuple(turn for turn in turns if turn.rules_name in (None, rules))


def _resample(schedule: Schedule, resamplings: Resamplings, turns: Sequence[Turn], position: int) -> None:
    """Schedules changes of temperature and top-p, which apply from `position`, the first position that no method has
    reached.

    Several changes of one knob at one position are merged into one change. If the merged change would restore the value
    before these changes, it is dropped.
    """
    sampling, in_force = applied(schedule.latest, _turns_of(SAMPLING, turns))
    for turn in in_force:
        before = resamplings.pop((position, turn.name), turn).old
        if turn.value != before:
            resamplings[position, turn.name] = replace(turn, old=before)
    if in_force:
        schedule.turn(position, sampling)


def _begun(
    engine: Engine,
    prompt_ids: Sequence[int],
    config: RunConfig,
    unopened: deque[Method],
    lanes: list[Lane],
    steering: Steering,
) -> Iterator[Start | End]:
    """Opens methods while `_opens_next` allows it; a method is removed from `unopened` once it has read the prompt.
    Before its first round, a method does all work in advance that it can.
    """
    while unopened and _opens_next(lanes, steering):
        session = unopened[0].open(engine, prompt_ids, config)
        stream = TextStream(engine.pair.tokenizer, prompt_ids)
        lanes.append(Lane(unopened[0], session, stream, config.max_new_tokens))
        try:
            yield Start(method=unopened[0].name, prefill_s=session.prefill())
        except LogitsError:
            yield _broken(lanes[-1], engine.pair.dtype)
        unopened.popleft()
        while not steering.stopped and _prepare(lanes, steering):
            pass


def _broken(lane: Lane, precision: str) -> End:
    """Ends a method whose target leaves no choice in its next round. The other methods of the race may not meet these
    logits.
    """
    lane.ended = True
    return End(method=lane.name, reason="error", error=str(LogitsError(f"round {lane.rounds + 1}", precision)))


def _opens_next(lanes: Sequence[Lane], steering: Steering) -> bool:
    """Whether to open the next method. Usually it opens when all open methods have decoded a round, so that the screen
    soon shows rounds. If the user steps through a method that is not open yet, the next method opens at once.
    """
    asked = steering.watched and steering.watched not in [lane.name for lane in lanes]
    stepped = bool(asked) and steering.paused and not steering.stopped
    return stepped or all(lane.rounds or lane.ended for lane in lanes)


def _watched(steering: Steering, lanes: Sequence[Lane]) -> Lane:
    """Lane of the method that the user watches: the first lane until the user chooses another method."""
    return next((lane for lane in lanes if lane.name == steering.watched), lanes[0])


def _prepare(lanes: Sequence[Lane], steering: Steering) -> bool:
    """Lets one session do a part of its work in advance, and tells the screen; returns whether any session had such
    work.
    """
    steering.preparing = next(filter(None, (lane.session.prepare() for lane in lanes if not lane.ended)), "")
    return bool(steering.preparing)


def _holding(steering: Steering, lane: Lane, lanes: Sequence[Lane], pieces: Pieces, started: float) -> AtStage:
    """Callback that pauses a lane at each stage of a round while the user steps through the watched method."""

    def at_stage(name: StageName, outcome: Outcome) -> float:
        if lane is not _watched(steering, lanes) or not takes_step(steering):
            return 0.0
        since = time.perf_counter()
        hold(steering, Stage(name, _round(lane, outcome, pieces, started, text="")))
        return time.perf_counter() - since

    return at_stage


def _text(lane: Lane, outcome: Outcome) -> str:
    text = lane.stream.push(outcome.committed)
    return text + lane.stream.finish() if outcome.finished else text


def _round(lane: Lane, outcome: Outcome, pieces: Pieces, started: float, text: str) -> Round:
    event = Round(
        method=lane.name,
        round=lane.rounds,
        position=lane.generated,
        t=lane.decode_s + outcome.round_s,
        wall_s=time.perf_counter() - started,
        draft_s=outcome.draft_s,
        verify_s=outcome.verify_s,
        commit_s=outcome.commit_s,
        target_forwards=outcome.target_forwards,
        draft_forwards=outcome.draft_forwards,
        knobs=outcome.knobs,
        tokens=outcome.tree.tokens,
        parents=outcome.tree.parents,
        logprobs=outcome.tree.logprobs,
        draft_logprobs=outcome.tree.draft_logprobs or [],
        pieces=[pieces(token) for token in outcome.tree.tokens],
        accepted=outcome.accepted,
        committed=outcome.committed,
        text=text,
        shape=(outcome.shape.k, outcome.shape.l1, outcome.shape.l2) if outcome.shape else None,
        drawn=_draw_counts(outcome.tree),
        origins=outcome.tree.origins or [],
        verification=outcome.statistics() if outcome.committed else None,
        limited_by=limited_by(outcome.rules, outcome.tree, outcome.room) if outcome.rules else None,
        stalled_s=outcome.stalled_s or None,
        waited_s=outcome.waited_s or None,
    )
    return within(event, lane.longest - lane.generated)


def _draw_counts(tree: TokenTree) -> list[int]:
    """How many times each node of a sampled tree was sampled; 1 for the root. Empty for a deterministic tree."""
    counts = Counter(child for draws in (tree.draws or {}).values() for child in draws.children)
    return [1, *(counts[node] for node in range(1, len(tree)))] if tree.draws else []


def limited_by(rules: Rules, tree: TokenTree, room: int) -> Limit:
    """The limit that kept the most probable leaf of a tree from having children. If several limits did so, the result
    is the limit that must be relaxed first: until then, relaxing other limits has no effect on this leaf. `room` is the
    number of levels that fit in the context.
    """
    if tree.lost:
        return LOST
    parents = set(tree.parents)
    leaf = max((node for node in range(len(tree)) if node not in parents), key=tree.path_logprobs.__getitem__)
    depth = tree.depths[leaf]
    if depth >= room:
        return "context"
    if tree.origins and tree.origins[leaf] == "lookup":
        return "cost"
    return rules.limit(depth, tree.path_probability(leaf))


def _next(lanes: Sequence[Lane]) -> Lane | None:
    """The method that decodes next; None if the texts of all open methods have ended."""
    active = (lane for lane in lanes if not lane.ended)
    return min(active, key=lambda lane: lane.decode_s - lane.stalled_s, default=None)


def _decoded(
    lane: Lane, step: Callable[[], Outcome], pieces: Pieces, started: float, pair: Pair
) -> Generator[Event, None, Round | None]:
    """Decodes a round. Yields its event between the knob changes that took effect in it and those by the history rule
    after it, then the end of the method's text; returns the round's event, None if the target's logits left no choice.
    """
    try:
        outcome = step()
    except LogitsError:
        yield _broken(lane, pair.dtype)
        return None
    yield from lane.knob_events(outcome.turned_before)
    event = _round(lane, outcome, pieces, started, _text(lane, outcome))
    yield event
    lane.count(outcome)
    yield from lane.knob_events(outcome.turned_after)
    if outcome.finished:
        lane.ended = True
        yield End(method=lane.name, reason=outcome.finished, peak_bytes=peak_bytes(pair.target.device))
    return event


def _judged(engine: Engine, prompt_ids: list[int], race: Race) -> dict[str, Figures]:
    """The final figures of each method. If a method's text differs from the text of `ar`, its figures include the logit
    gap at the first difference and whether this difference is a near tie.
    """
    final, judge = race.figures(), Judge(engine.pair.target, engine.gumbel_noise(), engine.scorer)
    for name, figures in final.items():
        index = figures.first_difference
        if index is not None and engine.pair.target.judgeable and not differs_by_design(figures):
            prefix = [*prompt_ids, *race.tallies["ar"].tokens[:index]]
            rivals = (race.tallies["ar"].tokens[index], race.tallies[name].tokens[index])
            verdict = judge(prefix, rivals, by_module=METHODS[name].by_module)
            gap = verdict.gap if math.isfinite(verdict.gap) else None
            final[name] = msgspec.structs.replace(figures, near_tie=verdict.near_tie, first_difference_gap=gap)
    engine.scorer.give_way()
    return final
