"""The state of one method of a run, as the screen shows it: a pure fold of the method's events."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from msgspec import structs

from decoder.analysis.losslessness import AtDepth, Evidence, by_draft_depth, weighed
from decoder.analysis.metrics import Tally, by_depth, drafted_nodes
from decoder.append_only import SharedList
from decoder.events import Knob, Knobs, Limit, Round, Run
from decoder.knobs import KnobName
from decoder.methods import METHODS, all_knobs, method_of
from decoder.sampling.settings import Sampling
from decoder.tree import depths, ruled_part, share_of_depth
from dynatui.clean import clean_line
from dynatui.state.tokens import Token, tokens_of

WINDOW = 10
"""Number of rounds of the window for a method without a parameter `window`."""
IN_A_ROW = 10
"""Changes of a knob are joined if fewer than this number of rounds lie between them, too few to show an effect."""
_MOST_POINTS = 512
_MOST_TURNS = 200
_MOST_CHANGES = 200
_LARGEST = 1e6
_LONGEST_WINDOW = 1000


@dataclass(frozen=True, slots=True)
class Sample:
    tokens: int
    drafted: int
    depth: int
    depth_acceptance: float
    round_s: float
    """Decode time of the round in seconds; 0 if the round does not count in rates."""
    stalled_s: float = 0.0
    """Part of the round's decode time during which threads waited for a CPU or the process was stopped, in seconds."""

    @property
    def timed_tokens(self) -> int:
        """Number of committed tokens; 0 if the round does not count in rates."""
        return self.tokens if self.round_s > 0 else 0


class Curve(msgspec.Struct, frozen=True):
    """A series with a bounded number of points: at the bound, each pair of adjacent points is replaced by its mean."""

    points: SharedList[float] = msgspec.field(default_factory=SharedList)
    ends: SharedList[int] = msgspec.field(default_factory=SharedList)
    """Length of the text after the last round of each point, in tokens."""
    stride: int = 1
    waiting: tuple[float, ...] = ()

    def add(self, value: float, end: int) -> "Curve":
        waiting = (*self.waiting, value)
        if len(waiting) < self.stride:
            return Curve(self.points, self.ends, self.stride, waiting)
        points, ends = self.points.plus([math.fsum(waiting) / len(waiting)]), self.ends.plus([end])
        if len(points) < _MOST_POINTS:
            return Curve(points, ends, self.stride)
        pairs = zip(points[::2], points[1::2], strict=True)
        return Curve(SharedList((a + b) / 2 for a, b in pairs), SharedList(ends[1::2]), self.stride * 2)


@dataclass(frozen=True)
class Change:
    round: int
    name: KnobName
    old: float
    new: float
    by_user: bool
    token: int
    """Number of tokens of the text before the round."""
    first: int
    """The first round after the earliest of the joined changes."""
    presses: int = 1
    acceptance: float | None = None
    """Mean depth acceptance that caused a change by the history rule; None for a change by the user."""

    def joined(self, later: "Change") -> "Change | None":
        """This change and `later` as one change; None if the knobs differ or the changes are too far apart."""
        if later.name != self.name or later.round - self.round >= IN_A_ROW:
            return None
        return replace(later, old=self.old, first=self.first, presses=self.presses + later.presses)


class Curves(msgspec.Struct, frozen=True):
    """Curves of one text; acceptance, tokens and drafted depth are moving averages."""

    acceptance: Curve = Curve()
    tokens: Curve = Curve()
    d0: Curve = Curve()
    tau_h: Curve = Curve()
    tau_l: Curve = Curve()
    depth: Curve = Curve()
    rate: Curve = Curve()
    """Tokens per second from the beginning of the text to each round."""
    draft_ms: Curve = Curve()
    verify_ms: Curve = Curve()
    commit_ms: Curve = Curve()


class LaneState(msgspec.Struct, frozen=True):
    parameters: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Parameters at the start of the run; not checked if they come from a recording."""
    tokens: SharedList[Token] = msgspec.field(default_factory=SharedList)
    past: SharedList[Round] = msgspec.field(default_factory=SharedList)
    samples: SharedList[Sample] = msgspec.field(default_factory=SharedList)
    curves: Curves = Curves()
    turns: tuple[Change, ...] = ()
    last_turn: int = 0
    changes: tuple[Change, ...] = ()
    shares: tuple[float, ...] = ()
    """Depth acceptance of the newest rounds with a draft, at most one window of rounds."""
    ruled: tuple[float, ...] = ()
    """Like `shares`, but looked-up nodes do not count; the history rule uses these values."""
    settings: Mapping[KnobName, float] = msgspec.field(default_factory=dict)
    """Value of every knob as it was set last, by the user or by the history rule."""
    user_settings: Mapping[KnobName, float] = msgspec.field(default_factory=dict)
    """Value of every knob as the user set it last, or else at the start of the run."""
    spans: tuple[tuple[int, Mapping[KnobName, float]], ...] = ()
    """First token and `user_settings` of the newest stretches of text between the user's knob changes."""
    knobs: Knobs | None = None
    """Present, unrounded values of the knobs that rounds record; None for a method without these knobs."""
    evidence: Evidence = Evidence()
    """Evidence of losslessness over the rounds with sampled tokens."""
    draft_depths: tuple[AtDepth, ...] = ()
    """Agreement of draft and target at each depth of sampled trees, since the user's last knob change."""
    history: bool | None = None
    """Whether the history rule is on; None for a method without this rule."""

    @property
    def window(self) -> int:
        return min(_LONGEST_WINDOW, max(1, int(self.parameter("window", WINDOW))))

    @property
    def in_force(self) -> Mapping[KnobName, float]:
        """Present value of every knob: the unrounded value if rounds record it, else the value set last."""
        return self.settings if self.knobs is None else {**self.settings, **structs.asdict(self.knobs)}

    @property
    def marks(self) -> tuple[Change, ...]:
        return tuple(turn for turn in self.turns if turn.old != turn.new)

    @property
    def newest(self) -> Round | None:
        return self.past[-1] if self.past else None

    @property
    def committed(self) -> int:
        newest = self.newest
        return newest.position + len(newest.committed) if newest else 0

    @property
    def acceptance(self) -> float | None:
        """Mean depth acceptance over the window; None before the first draft."""
        return _mean(self.shares)

    @property
    def ruled_acceptance(self) -> float | None:
        """Mean depth acceptance over the window, not counting looked-up nodes; None before the first draft."""
        return _mean(self.ruled)

    @property
    def limits(self) -> tuple[Limit | None, ...]:
        """The limit that stopped the tree's growth in each round of the window; None if the round records no limit."""
        return tuple(event.limited_by for event in self.past[-self.window :])

    def setting(self, name: KnobName, number: int) -> float | None:
        """The value of a knob in round `number`, as it had been set last; None if the method lacks the knob."""
        later = next((change for change in self.changes if change.name == name and change.round > number), None)
        return later.old if later else self.settings.get(name)

    def parameter(self, name: str, default: float) -> float:
        """A numeric parameter, or `default` if it is missing or not a finite number."""
        value = self.parameters.get(name)
        return float(value) if value is not None and is_sane(value) else default


def begun(method: str, run: Run) -> LaneState:
    parameters = run.methods.get(method, {})
    sampling: dict[KnobName, float] = {knob.name: float(getattr(run, knob.name)) for knob in Sampling.knobs}
    settings, history = _knobs_of(method, parameters) | sampling, parameters.get("history")
    history = history if isinstance(history, bool) else None
    spans = ((0, settings),)
    return LaneState(parameters=parameters, settings=settings, user_settings=settings, spans=spans, history=history)


def decoded(lane: LaneState, event: Round, tally: Tally) -> LaneState:
    """The lane after one more round, which `tally` already includes."""
    window, levels = lane.window, len(by_depth(event))
    ruled = event.accepted, levels
    if event.origins:
        ruled = ruled_part(event.accepted, depths(event.parents), event.origins)
    sample = Sample(
        tokens=len(event.committed),
        drafted=drafted_nodes(event),
        depth=levels,
        depth_acceptance=share_of_depth(event.accepted, levels),
        round_s=max(0.0, event.t - (lane.newest.t if lane.newest else 0.0)),
        stalled_s=event.stalled_s or 0.0,
    )
    whole = "".join(event.pieces)
    harmless = clean_line(whole) == whole  # one check of the whole text is cheaper than cleaning every piece
    clean_event = event if harmless else structs.replace(event, pieces=[clean_line(piece) for piece in event.pieces])
    after = structs.replace(
        lane,
        past=lane.past.plus([clean_event]),
        samples=lane.samples.plus([sample]),
        tokens=lane.tokens.plus(tokens_of(event, sample.round_s)),
        shares=_with_share(lane.shares, event.accepted, levels, window),
        ruled=_with_share(lane.ruled, *ruled, window),
        knobs=event.knobs or lane.knobs,
        evidence=weighed(lane.evidence, event),
        draft_depths=by_draft_depth(lane.draft_depths, event),
    )
    return structs.replace(after, curves=_extended(after, event, tally))


def _with_share(shares: tuple[float, ...], accepted: Sequence[int], levels: int, window: int) -> tuple[float, ...]:
    """`shares` with the depth acceptance of one more round, cut to the window; unchanged if the round has no draft."""
    return (*shares, share_of_depth(accepted, levels))[-window:] if levels else shares


def _mean(shares: tuple[float, ...]) -> float | None:
    return math.fsum(shares) / len(shares) if shares else None


def turned(lane: LaneState, event: Knob) -> LaneState:
    by_user = event.source == "user"
    lane = structs.replace(lane, settings={**lane.settings, event.name: event.new})
    if event.name == "history":
        lane = structs.replace(lane, history=bool(event.new))
    elif lane.knobs is not None and event.name in Knobs.__struct_fields__:
        lane = structs.replace(lane, knobs=structs.replace(lane.knobs, **{str(event.name): event.new}))
    change = Change(event.round, event.name, event.old, event.new, by_user, lane.committed, first=event.round)
    if not by_user:
        change = replace(change, acceptance=lane.ruled_acceptance)
    lane = structs.replace(lane, changes=(*lane.changes, change)[-_MOST_CHANGES:])
    if not by_user:
        return lane
    joint = lane.turns[-1].joined(change) if lane.turns else None
    user_settings = {**lane.user_settings, event.name: event.new}
    earlier = lane.spans[:-1] if lane.spans and lane.spans[-1][0] == lane.committed else lane.spans
    return structs.replace(
        lane,
        user_settings=user_settings,
        spans=(*earlier, (lane.committed, user_settings))[-_MOST_TURNS:],
        turns=(*lane.turns[:-1], joint) if joint else (*lane.turns, change)[-_MOST_TURNS:],
        last_turn=event.round,
        draft_depths=(),
    )


def _extended(lane: LaneState, event: Round, tally: Tally) -> Curves:
    """The curves with one more round; a round without a draft repeats the last mean depth acceptance."""
    recent = lane.samples[-lane.window :]
    values = {
        "acceptance": lane.acceptance or 0.0,
        "tokens": sum(sample.tokens for sample in recent) / len(recent),
        "depth": sum(sample.depth for sample in recent) / len(recent),
        "rate": tally.rated.tokens_per_second or 0.0,
        "draft_ms": 1000 * (event.draft_s or 0.0),
        "verify_ms": 1000 * (event.verify_s or 0.0),
        "commit_ms": 1000 * (event.commit_s or 0.0),
        **(structs.asdict(event.knobs) if event.knobs else {}),
    }
    end, curves = lane.committed, lane.curves
    return structs.replace(curves, **{name: getattr(curves, name).add(value, end) for name, value in values.items()})


def _knobs_of(method: str, parameters: Mapping[str, Any]) -> dict[KnobName, float]:
    """The knobs among a method's parameters; for an unknown method, all parameters with the name of a known knob."""
    known = method_of(method)
    knobs = METHODS[known.rules].knobs if known and known.rules else tuple(all_knobs().values())
    values = {knob.name: knob.value_of(parameters.get(knob.parameter)) for knob in knobs}
    return {name: float(value) for name, value in values.items() if is_sane(value)}


def is_sane(value: object) -> bool:
    """Whether a recorded value is a finite number whose absolute value is below 10^6."""
    return isinstance(value, int | float) and abs(value) < _LARGEST
