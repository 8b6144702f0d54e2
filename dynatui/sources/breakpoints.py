"""Break conditions of the user: a pure fold over the events of one run.

The engine's thread asks after every event, so the cost of a question depends on that event alone. Knows neither threads
nor the screen; the caller does the stopping.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from decoder.analysis.metrics import by_depth, compared_until, drafted_nodes
from decoder.events import Event, Knob, Round, Run
from decoder.methods import WHOLE, draws_alone
from decoder.methods.adaptive import AdaptiveTree
from decoder.tree import share_of_depth
from decoder.tree_rules import used_depth
from dynatui.number_format import nth
from dynatui.state.lane import is_sane

Break: TypeAlias = Literal["rejected", "full", "bound", "under", "difference"]

BREAKS: tuple[Break, ...] = get_args(Break)
LABELS: Mapping[Break, str] = {
    "rejected": "nothing accepted",
    "full": "tree full",
    "bound": "D0 at a bound",
    "under": "depth acceptance of the last rounds under x",
    "difference": "first difference from ar",
}
EXPLANATIONS: Mapping[Break, str] = {
    "rejected": "guesses were made in a round, and the target wanted none of them",
    "full": "the tree has N_max nodes: more would have been drafted; auto has no N_max",
    "bound": "the used base depth arrives at 1 or at D_max - 1, where history can go no further",
    "under": "the mean depth acceptance of the newest rounds that drafted, a window of them, falls below x",
    "difference": "the watched text and that of ar differ for the first time",
}
LIMIT = 0.3
"""Default of x in the label."""


@dataclass(frozen=True)
class Conditions:
    """The break conditions that are on."""

    on: frozenset[Break] = frozenset()
    limit: float = LIMIT
    """The x of the label with one."""

    def toggled(self, name: Break) -> "Conditions":
        """The conditions with one of them switched."""
        return replace(self, on=self.on ^ {name})

    def moved(self, distance: float) -> "Conditions":
        """The conditions with the limit moved, within 0 to 1."""
        return replace(self, limit=min(1.0, max(0.0, round(self.limit + distance, 2))))

    def label(self, name: Break) -> str:
        """A condition in few words, its limit included."""
        return LABELS[name].replace("x", f"{self.limit:.2f}".removeprefix("0")) if name == "under" else LABELS[name]


@dataclass(frozen=True)
class Watch:
    """State of the conditions: folded events of the watched method and of ar, of one run."""

    chosen: str = ""
    """The user's watched method; empty: the first of a run."""
    watched: str = ""
    n_max: int | None = None
    """Nodes of a full tree; None: no limit."""
    d_max: int | None = None
    window: int = 10
    shares: tuple[float, ...] = ()
    """Depth acceptance of history's window: the newest rounds that drafted."""
    d0: float | None = None
    raced: bool = False
    """Whether ar takes part, with whose text the watched one is compared."""
    same_until: int = WHOLE
    """Number of first tokens that must equal ar's."""
    ahead: tuple[int, ...] = ()
    """Tokens of the method ahead that the other has not reached yet."""
    leader: str = ""
    """The method ahead."""
    common: int = 0
    """Number of tokens that both have."""
    differs_at: int | None = None
    """Index of the first token that differs from ar's."""

    def after(self, event: Event) -> "Watch":
        """The state after one more event; a new run resets it."""
        if isinstance(event, Run):
            return _begun(event, self.chosen)
        if isinstance(event, Knob) and event.name == "temperature":
            return replace(self, raced=self.raced and not (event.new > 0 and draws_alone(self.watched)))
        if isinstance(event, Knob) and event.method == self.watched:
            value = _whole(event.new)
            n_max, d_max = (value if event.name == name else getattr(self, name) for name in ("n_max", "d_max"))
            return replace(self, n_max=n_max, d_max=d_max)
        if isinstance(event, Round):
            return self._decoded(event)
        return self

    @property
    def mean_share(self) -> float | None:
        """Mean depth acceptance over the window; None until the window is full."""
        return math.fsum(self.shares) / len(self.shares) if len(self.shares) >= self.window else None

    @property
    def bound(self) -> int | None:
        """The base depth in use at one of its bounds, else None."""
        if self.d0 is None or self.d_max is None:
            return None
        used = used_depth(self.d0)
        return used if used in (1, self.d_max - 1) else None

    def _decoded(self, event: Round) -> "Watch":
        seen = self._compared(event) if self.raced and event.method in (self.watched, "ar") else self
        if event.method != self.watched:
            return seen
        d0 = event.knobs.d0 if event.knobs and is_sane(event.knobs.d0) else self.d0
        shares = self.shares
        if drafted_nodes(event):
            shares = (*shares, share_of_depth(event.accepted, len(by_depth(event))))[-self.window :]
        return replace(seen, shares=shares, d0=d0)

    def _compared(self, event: Round) -> "Watch":
        """The state after one more round of either method: the lead, and the first difference."""
        if self.differs_at is not None:
            return self
        if event.method == self.leader or not self.ahead:
            return replace(self, leader=event.method, ahead=(*self.ahead, *event.committed))
        pairs = enumerate(zip(self.ahead, event.committed, strict=False), self.common)
        different = next((index for index, (one, other) in pairs if one != other and index < self.same_until), None)
        met = min(len(self.ahead), len(event.committed))
        overtaken = event.committed[met:]
        return replace(
            self,
            differs_at=different,
            common=self.common + met,
            ahead=tuple(overtaken) or self.ahead[met:],
            leader=event.method if overtaken else self.leader,
        )


def met(conditions: Conditions, before: Watch, event: Event) -> str | None:
    """The met condition in words; None to go on. The next call needs `before.after(event)`."""
    if not conditions.on or not isinstance(event, Round):
        return None
    after = before.after(event)
    reasons = [_reason(name, conditions, before, after, event) for name in BREAKS if name in conditions.on]
    told = "; ".join(reason for reason in reasons if reason)
    whose = "" if event.method == after.watched else f" of {event.method}"
    return f"{told}, round {nth(event.round)}{whose}" if told else None


def _reason(name: Break, conditions: Conditions, before: Watch, after: Watch, event: Round) -> str | None:
    if name == "difference":
        new = before.differs_at is None and after.differs_at is not None
        return f"{after.watched} differs from ar at token {after.differs_at}" if new else None
    if event.method != after.watched:
        return None
    drafted = drafted_nodes(event)
    match name:
        case "rejected":
            return f"nothing accepted of {drafted} drafted" if drafted and not event.accepted else None
        case "full":
            full = after.n_max and drafted >= after.n_max
            return f"the tree is full with {drafted} nodes" if full else None
        case "bound":
            arrived = after.bound is not None and before.d0 is not None and after.bound != before.bound
            return f"D0 arrived at its bound {after.bound}" if arrived else None
        case "under":
            was, now = before.mean_share, after.mean_share
            fell = now is not None and now < conditions.limit and (was is None or was >= conditions.limit)
            words = f"mean of {after.window} rounds is under {conditions.limit:g}"
            return f"depth acceptance {now:.2f}, {words}" if fell else None


def _begun(run: Run, chosen: str) -> Watch:
    watched = chosen if chosen in run.methods else next(iter(run.methods), "")
    own = run.methods.get(watched, {})
    # For a method without history, such as streaming, a window is no number of rounds.
    window = _whole(own.get("window")) if "history" in own else None
    until = compared_until(run, watched, sampled=run.temperature > 0)
    return Watch(
        chosen=chosen,
        watched=watched,
        raced="ar" in run.methods and watched != "ar" and until is not None,
        same_until=WHOLE if until is None else until,
        n_max=_whole(own.get("n_max")),
        d_max=_whole(own.get("d_max")),
        window=max(1, window) if window is not None else AdaptiveTree.window,
    )


def _whole(value: Any) -> int | None:
    return int(value) if is_sane(value) else None
