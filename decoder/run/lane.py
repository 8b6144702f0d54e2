"""A lane of a race: decodes a text by one method, measures the times of its rounds and yields events about them."""

import time
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from decoder.analysis.stalls import RECENT, stalled_s
from decoder.errors import LogitsError
from decoder.events import LOST, End, Event, Knob, Limit, Round, Start
from decoder.methods.method import Method
from decoder.models.pair import Pair
from decoder.models.text import Pieces, TextStream
from decoder.run.text_end import within
from decoder.session.protocol import AtStage, Outcome, Session
from decoder.session.steering import Turn
from decoder.system import cpu_threads
from decoder.system.device import peak_bytes
from decoder.system.waiting import ProcessorWaits
from decoder.tree import TokenTree
from decoder.tree_rules import Rules


class RaceClock:
    """Runs the rounds of a race with torch's threads awake, and measures how long each round waited or stalled."""

    def __init__(self, started: float, *, threads: bool) -> None:
        """If torch's CPU threads are not needed (`threads`), they are left asleep."""
        self._started = started
        self._threads = threads
        self._left_s = time.perf_counter()
        """When the latest round ended, by `time.perf_counter`."""
        self._waits = ProcessorWaits()

    @property
    def wall_s(self) -> float:
        return time.perf_counter() - self._started

    def step(self, session: Session, turns: tuple[Turn, ...], at_stage: AtStage, usual_s: deque[float]) -> Outcome:
        """Decodes one more round of a session; updates `usual_s`, the session's latest round times without stalls."""
        if self._threads and time.perf_counter() - self._left_s > cpu_threads.AWAKE_S:
            cpu_threads.warm_threads()
        self._waits.begin()
        outcome = session.step(turns, at_stage)
        outcome.waited_s, lost_s = self._waits.end(outcome.round_s)
        outcome.stalled_s = stalled_s(outcome.round_s, lost_s, usual_s)
        if outcome.round_s and not outcome.stalled_s:
            usual_s.append(outcome.round_s)
        self._left_s = time.perf_counter()
        return outcome

    def close(self) -> None:
        self._waits.close()


@dataclass
class Lane:
    method: Method
    session: Session
    pair: Pair
    stream: TextStream
    pieces: Pieces
    clock: RaceClock
    longest: int
    """Largest number of tokens that the method appends to the prompt."""
    decode_s: float = 0.0
    stalled_s: float = 0.0
    """Part of the decode time that was lost to stalls."""
    latest_s: float = 0.0
    """Duration of the latest round, without stalls."""
    usual_s: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    """Durations of the latest rounds that did not stall."""
    rounds: int = 0
    generated: int = 0
    ended: bool = False

    @property
    def name(self) -> str:
        return self.method.name

    def opened(self) -> Start | End:
        """Prefills the prompt; returns `End` in place of `Start` if no token can be chosen from the target's logits."""
        try:
            return Start(method=self.name, prefill_s=self.session.prefill())
        except LogitsError:
            return self._broken()

    def prepare(self) -> str:
        """Does a part of the work that can be done in advance; returns the progress in words, "" without such work."""
        return "" if self.ended else self.session.prepare()

    def step(self, turns: Sequence[Turn], at_stage: AtStage) -> Generator[Event, None, Round | None]:
        """Decodes a round. Yields events: knob changes before the round, the round, changes by the history rule after
        it and, in the last round, `End`. Returns the round's event; None if the logits are unusable (`LogitsError`).
        """
        own = tuple(turn for turn in turns if turn.rules_name in (None, self.method.rules))
        try:
            outcome = self.clock.step(self.session, own, at_stage, self.usual_s)
        except LogitsError:
            yield self._broken()
            return None
        yield from self.knob_events(outcome.turned_before)
        event = self.event(outcome, self._text(outcome))
        yield event
        self._count(outcome)
        yield from self.knob_events(outcome.turned_after)
        if outcome.finished:
            yield self.end(outcome.finished)
        return event

    def end(self, reason: Literal["length", "eos", "stopped"]) -> End:
        self.ended = True
        return End(method=self.name, reason=reason, peak_bytes=peak_bytes(self.pair.target.device))

    def knob_events(self, turns: Iterable[Turn]) -> Iterator[Knob]:
        """Events of knob changes that take effect in round `self.rounds`."""
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

    def event(self, outcome: Outcome, text: str = "") -> Round:
        """The event of a round; for an unfinished round, with the values that are known so far."""
        event = Round(
            method=self.name,
            round=self.rounds,
            position=self.generated,
            t=self.decode_s + outcome.round_s,
            wall_s=self.clock.wall_s,
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
            pieces=[self.pieces(token) for token in outcome.tree.tokens],
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
        return within(event, self.longest - self.generated)

    def _text(self, outcome: Outcome) -> str:
        text = self.stream.push(outcome.committed)
        return text + self.stream.finish() if outcome.finished else text

    def _count(self, outcome: Outcome) -> None:
        self.latest_s = outcome.round_s - outcome.stalled_s
        self.decode_s += outcome.round_s
        self.stalled_s += outcome.stalled_s
        self.rounds += 1
        self.generated += len(outcome.committed)

    def _broken(self) -> End:
        """Ends only this method after unusable logits, since the other methods may not encounter such logits."""
        self.ended = True
        error = LogitsError(f"round {self.rounds + 1}", self.pair.dtype)
        return End(method=self.name, reason="error", error=str(error))


def _draw_counts(tree: TokenTree) -> list[int]:
    """How often each node of a sampled tree was sampled; 1 for the root. Empty for a deterministic tree."""
    counts = Counter(child for draws in (tree.draws or {}).values() for child in draws.children)
    return [1, *(counts[node] for node in range(1, len(tree)))] if tree.draws else []


def limited_by(rules: Rules, tree: TokenTree, room: int) -> Limit:
    """The limit that kept a tree's most probable leaf from having children; if several apply, the limit to relax first.
    `room` is the number of levels that fit in the context.
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
