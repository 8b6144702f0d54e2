"""Cuts the last round of a text at the end of the text. The engine drafts as if texts never ended, so that no round
depends on `max_new_tokens`; without the cut, the last round would count tokens beyond the end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from decoder.analysis.metrics import by_depth, drafted_nodes
from decoder.events import LENGTH, Event, Figures, Round, Run, Summary, Verification
from decoder.methods import root_is_drafted
from decoder.tree import depths, share_of_depth

_BY_NODE = ("tokens", "logprobs", "draft_logprobs", "pieces", "drawn", "origins")


def within(event: Round, left: int) -> Round:
    """The round without nodes beyond the end of the text; `left` is the number of tokens that the length limit allowed
    before the round. The last committed token is the target's own, so at most `left` - 1 levels can be accepted.
    """
    return event if event.draft_forwards is None else _to_end_of_text(_to_length(event, left))


def _to_length(event: Round, left: int) -> Round:
    if len(event.tokens) < left:
        return event
    levels = [depth + root_is_drafted(event.method) for depth in depths(event.parents)]
    kept_nodes = [node for node, level in enumerate(levels) if node == 0 or level < left]
    accepted = [node for node in event.accepted if levels[node] < left]
    if (len(kept_nodes), accepted) == (len(levels), event.accepted):
        return event
    renumbered = {old: new for new, old in enumerate(kept_nodes)}
    return structs.replace(
        event,
        parents=[renumbered.get(event.parents[node], -1) for node in kept_nodes],
        accepted=[renumbered[node] for node in accepted],
        verification=event.verification and _of_nodes(event.verification, kept_nodes, left - 1),
        limited_by=LENGTH if event.limited_by else None,
        **{name: [values[node] for node in kept_nodes] for name in _BY_NODE if (values := getattr(event, name))},
    )


def _of_nodes(statistics: Verification, kept_nodes: Sequence[int], levels: int) -> Verification:
    """Statistics of `kept_nodes`: the root and all nodes of the first `levels` drafted levels."""
    if not statistics.reach:
        return statistics
    reach = [statistics.reach[node] for node in kept_nodes]
    return structs.replace(statistics, reach=reach, path=statistics.path[:levels], predicted_tokens=math.fsum(reach))


def _to_end_of_text(event: Round) -> Round:
    """The round without the accepted node of the end-of-text token and the nodes after it. If nodes are cut,
    `predicted_tokens` would be wrong and becomes None.
    """
    accepted = event.accepted[: len(event.committed) - 1]
    if not event.committed or accepted == event.accepted:
        return event
    statistics = event.verification
    cut = statistics and structs.replace(statistics, path=statistics.path[: len(accepted)], predicted_tokens=None)
    return structs.replace(event, accepted=accepted, verification=cut)


@dataclass(frozen=True)
class _Counts:
    """Sums over rounds of one method, from which its figures are computed."""

    drafted: int = 0
    accepted: int = 0
    depth_shares: float = 0.0

    @classmethod
    def of(cls, event: Round) -> "_Counts":
        levels = len(by_depth(event))
        return cls(drafted_nodes(event), len(event.accepted), share_of_depth(event.accepted, levels))

    def plus(self, more: "_Counts", less: "_Counts") -> "_Counts":
        return _Counts(
            self.drafted + more.drafted - less.drafted,
            self.accepted + more.accepted - less.accepted,
            self.depth_shares + more.depth_shares - less.depth_shares,
        )


class TextEnds:
    """Cuts the last rounds of a recording's texts, and corrects the final figures: recordings of schema 2 and earlier
    have nodes and tokens beyond the end of a text.
    """

    def __init__(self) -> None:
        self._longest = 0
        self._beyond: dict[str, _Counts] = {}
        """Sums over the parts that were cut, by method."""

    def event(self, event: Event) -> Event:
        match event:
            case Run():
                self._longest, self._beyond = event.max_new_tokens, {}
            case Round():
                return self._round(event)
            case Summary():
                figures = {name: self._figures(name, entry) for name, entry in event.methods.items()}
                return structs.replace(event, methods=figures)
        return event

    def _round(self, event: Round) -> Round:
        cut = within(event, max(1, len(event.committed), self._longest - event.position))
        if cut is not event:
            before = self._beyond.get(event.method, _Counts())
            self._beyond[event.method] = before.plus(_Counts.of(event), _Counts.of(cut))
        return cut

    def _figures(self, method: str, recorded: Figures) -> Figures:
        beyond = self._beyond.get(method)
        if beyond is None or not recorded.rounds or recorded.drafted is None or recorded.accepted is None:
            return recorded
        drafted, accepted = max(0, recorded.drafted - beyond.drafted), max(0, recorded.accepted - beyond.accepted)
        shares = max(0.0, (recorded.depth_acceptance or 0.0) * recorded.rounds - beyond.depth_shares)
        return structs.replace(
            recorded,
            drafted=drafted,
            accepted=accepted,
            path_length=accepted / recorded.rounds,
            acceptance_rate=accepted / drafted if drafted else None,
            depth_acceptance=shares / recorded.rounds if drafted else None,
        )
