"""Race: several methods decode one prompt on one thread, with equal shares of time; all results are events.

The method with the least decode time always decodes the next round, so faster methods are visibly ahead. A method's
clock runs only while the method decodes. The user may pause a race, step through its stages, slow it down and stop it,
and change temperature and top-p at the same positions of all texts. Independent of screens and files.
"""

import math
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import msgspec

from decoder.analysis import metrics
from decoder.engine import Engine
from decoder.errors import DeviceError
from decoder.events import End, Event, Figures, Knob, Round, Run, Summary
from decoder.forward.near_tie import Judge
from decoder.knobs import KnobName
from decoder.methods import chosen, method_of, require_knobs, require_model_free, require_shared_tokens
from decoder.methods.method import Method
from decoder.models.heads import head_kind
from decoder.models.text import Pieces, TextStream
from decoder.prompt import AnyPrompt
from decoder.run.config import RunConfig
from decoder.run.decoding_path import decoding_path
from decoder.run.fitting import Fed, encoded
from decoder.run.lane import Lane, RaceClock
from decoder.sampling.settings import SAMPLING, Schedule
from decoder.session.protocol import AtStage, Outcome
from decoder.session.steering import SlowMotion, Stage, StageName, Steering, Turn, applied, hold, takes_step
from decoder.system.cpu_threads import quick_switches
from decoder.system.device import make_current, memory_is_full, release_memory, require_working
from decoder.tensor_parallel.check import require_partial_target
from decoder.tree_rules import MOST_NODES
from decoder.version import VERSION

_ON_HOST = 1
"""Largest number of tokens that a method has chosen but not yet reported, if its rounds run on the host."""
_ON_DEVICE = MOST_NODES + 1
"""The same if rounds run on the device: the next round is queued before the result of the present one is reported."""


def decode(
    engine: Engine, prompt: AnyPrompt, config: RunConfig | None = None, steering: Steering | None = None
) -> Iterator[Event]:
    """Decodes one prompt with every method of `config`; yields events, from `Run` to `Summary`.

    Args:
        engine: A pair from `load_pair`.
        prompt: Plain text (a user's message if `config.chat` is True) or a conversation.
        config: Methods and their parameters.
        steering: Lets another thread change knobs, pause, step, slow down and stop the run.

    Raises:
        PromptError: The prompt is empty, does not fit into the context, or has a token outside the target's vocabulary.
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
    race = metrics.RunFold()
    with quick_switches(pair.target.device):
        for event in _told(engine, fed, config, methods, steering or Steering(), started):
            race = race.apply(event)
            yield event
    yield Summary(methods=_judged(engine, fed.ids, race), peak_bytes_by_rank=ranks.peak_bytes() if ranks else [])


class Pace:
    def __init__(self, steering: Steering, lanes: Sequence[Lane]) -> None:
        self._steering = steering
        self._lanes = lanes
        self._motion = SlowMotion(steering)

    def rest(self) -> None:
        """Waits while the run is paused between two rounds."""
        hold(self._steering, idle=self.prepare)

    def at_stage(self, lane: Lane) -> AtStage:
        """Callback that pauses a lane at each stage of a round while the user steps through the round."""

        def paused_s(name: StageName, outcome: Outcome) -> float:
            if lane is not self._watched or not takes_step(self._steering):
                return 0.0
            since = time.perf_counter()
            hold(self._steering, Stage(name, lane.event(outcome)))
            return time.perf_counter() - since

        return paused_s

    def after(self, lane: Lane, decoded: Round | None) -> None:
        """Waits after a round if the user steps through the run or has lowered its speed."""
        watched = self._watched
        if (lane is watched or watched.ended) and takes_step(self._steering):
            hold(self._steering, Stage("committed", decoded) if decoded and lane is watched else None)
        self._motion.after(lane.latest_s, self.prepare)

    def prepare(self) -> bool:
        """Lets one lane work in advance, shows the progress, and returns whether any lane had such work."""
        self._steering.preparing = next(filter(None, (lane.prepare() for lane in self._lanes)), "")
        return bool(self._steering.preparing)

    def prepare_all(self) -> None:
        while not self._steering.stopped and self.prepare():
            pass

    def opens_next(self) -> bool:
        """Whether to open the next lane: usually once all open lanes have decoded a round, so that the screen soon
        shows rounds; at once if the user steps through a method that is not open yet.
        """
        asked = self._steering.watched and self._steering.watched not in [lane.name for lane in self._lanes]
        stepped = bool(asked) and self._steering.paused and not self._steering.stopped
        return stepped or all(lane.rounds or lane.ended for lane in self._lanes)

    @property
    def _watched(self) -> Lane:
        """The lane that the user watches; the first lane until the user chooses another method."""
        return next((lane for lane in self._lanes if lane.name == self._steering.watched), self._lanes[0])


class Resampling:
    def __init__(self, schedule: Schedule, prompt_tokens: int, ahead: int) -> None:
        """`ahead` is the largest number of tokens that a method has chosen but not yet reported."""
        self._schedule = schedule
        self._prompt_tokens = prompt_tokens
        self._ahead = ahead
        self._seen = 0
        self._turns: dict[tuple[int, KnobName], Turn] = {}
        """Knob changes by (first position to which the change applies, knob)."""
        self._reported = Counter[str]()
        """Number of changes that events have reported, by method."""

    def told(self, turns: Sequence[Turn], lane: Lane, furthest: int) -> Iterator[Knob]:
        """Schedules the user's new knob changes; yields events of the changes that apply to the lane's next token."""
        if new := turns[self._seen :]:
            self._seen = len(turns)
            self._take(new, furthest)
        yield from self._reached(lane)

    def _take(self, new: Sequence[Turn], furthest: int) -> None:
        """New changes apply from the first position that no method has reached; the fastest generated `furthest`
        tokens.

        Several changes of one knob at one position are merged into one change, which is dropped if it restores the
        knob's earlier value.
        """
        require_knobs(turn.name for turn in new)
        position = self._prompt_tokens + self._ahead + furthest
        own = [turn for turn in new if turn.rules_name in (None, SAMPLING)]
        sampling, in_force = applied(self._schedule.latest, own)
        for turn in in_force:
            before = self._turns.pop((position, turn.name), turn).old
            if turn.value != before:
                self._turns[position, turn.name] = replace(turn, old=before)
        if in_force:
            self._schedule.turn(position, sampling)

    def _reached(self, lane: Lane) -> Iterator[Knob]:
        """Changes that apply to a lane's next token and are not reported yet; none for method `hf`, since transformers
        keeps its initial settings.
        """
        if lane.method.by_module:
            return
        position = self._prompt_tokens + lane.generated
        unreported = list(self._turns.items())[self._reported[lane.name] :]
        in_force = [turn for (start, _), turn in unreported if start <= position]
        self._reported[lane.name] += len(in_force)
        yield from lane.knob_events(in_force)


class Race:
    """The lanes of a run, and the loop over their rounds."""

    def __init__(
        self,
        engine: Engine,
        prompt_ids: Sequence[int],
        config: RunConfig,
        methods: Sequence[Method],
        steering: Steering,
        started: float,
    ) -> None:
        self._engine = engine
        self._prompt_ids = prompt_ids
        self._config = config
        self._steering = steering
        self._unopened = deque(methods)
        self._pieces = Pieces(engine.pair.tokenizer)
        self.lanes: list[Lane] = []
        self.clock = RaceClock(started, threads=engine.pair.target.by_torch_threads)
        self.pace = Pace(steering, self.lanes)
        self.resampling = Resampling(engine.sampling, len(prompt_ids), _ON_DEVICE if engine.slots else _ON_HOST)
        self.current = methods[0].name
        """Name of the method that is being opened or is decoding."""

    def rounds(self) -> Iterator[Event]:
        while self._unopened or not all(lane.ended for lane in self.lanes):
            yield from self._opened()
            lane, turns = self._next(), self._steering.turns
            if lane is None or self._steering.stopped:
                break
            yield from self.resampling.told(turns, lane, furthest=max(each.generated for each in self.lanes))
            self.current = lane.name
            decoded = yield from lane.step(turns, self.pace.at_stage(lane))
            self.pace.after(lane, decoded)

    def _opened(self) -> Iterator[Event]:
        """Opens lanes, waits while the run is paused, and opens a lane that the user has asked for during the pause."""
        yield from self._open()
        self.pace.rest()
        yield from self._open()

    def _open(self) -> Iterator[Event]:
        while self._unopened and self.pace.opens_next():
            method, pair = self._unopened[0], self._engine.pair
            self.current = method.name
            session = method.open(self._engine, self._prompt_ids, self._config)
            stream = TextStream(pair.tokenizer, self._prompt_ids)
            longest = self._config.max_new_tokens
            self.lanes.append(Lane(method, session, pair, stream, self._pieces, self.clock, longest))
            yield self.lanes[-1].opened()
            self._unopened.popleft()
            self.pace.prepare_all()

    def _next(self) -> Lane | None:
        """The lane with the least decode time without stalls, and of lanes with equal times the lane with the fewest
        rounds; None if the texts of all open methods have ended.
        """
        active = (lane for lane in self.lanes if not lane.ended)
        return min(active, key=lambda lane: (lane.decode_s - lane.stalled_s, lane.rounds), default=None)

    def close(self) -> None:
        self.clock.close()
        for lane in self.lanes:
            lane.session.close()


def _told(
    engine: Engine, fed: Fed, config: RunConfig, methods: Sequence[Method], steering: Steering, started: float
) -> Iterator[Event]:
    """Events of the run: `Run`, all events of rounds, and `End` after an error or for texts that the user stopped."""
    device = engine.pair.target.device
    release_memory(device)
    yield _run_event(engine, fed, config, methods)
    race = Race(engine, fed.ids, config, methods, steering, started)
    try:
        yield from race.rounds()
    except Exception as error:
        yield End(method=race.current, reason="error", error=str(error) or type(error).__name__)
        require_working(device)
        if memory_is_full(error):
            raise DeviceError(
                f"the memory of {engine.pair.device} is full; choose smaller models, --dtype float16, fewer --methods "
                "or fewer --max-new-tokens"
            ) from error
        raise
    finally:
        race.close()
    for lane in race.lanes:
        if not lane.ended:
            yield lane.end("stopped")


def _run_event(engine: Engine, fed: Fed, config: RunConfig, methods: Sequence[Method]) -> Run:
    path, pair = decoding_path(engine), engine.pair
    return Run(
        version=VERSION,
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        target=pair.target_name,
        draft=pair.draft_name,
        draft_head=head_kind(pair.head) if pair.head else msgspec.UNSET,
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


def _judged(engine: Engine, prompt_ids: list[int], race: metrics.RunFold) -> dict[str, Figures]:
    """Final figures. For a text that differs from the text of `ar`, they include the logit gap at the first difference,
    and whether this difference is a near tie.
    """
    final, judge = race.figures(), Judge(engine.pair.target, engine.gumbel_noise(), engine.scorer)
    for name, figures in final.items():
        index = figures.first_difference
        if index is not None and engine.pair.target.judgeable and not metrics.differs_by_design(figures):
            prefix = [*prompt_ids, *race.tallies["ar"].tokens[:index]]
            rivals = (race.tallies["ar"].tokens[index], race.tallies[name].tokens[index])
            method = method_of(name)
            verdict = judge(prefix, rivals, by_module=method is not None and method.by_module)
            gap = verdict.gap if math.isfinite(verdict.gap) else None
            final[name] = msgspec.structs.replace(figures, near_tie=verdict.near_tie, first_difference_gap=gap)
    engine.scorer.give_way()
    return final
