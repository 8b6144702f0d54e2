"""Replay of one recorded round under other rules, with known and unknown counts."""

from dataclasses import dataclass

from decoder.analysis import what_if
from decoder.analysis.rule_replay import TreeRecord, replay
from decoder.events import Round
from decoder.methods.adaptive import AdaptiveTree


@dataclass(frozen=True)
class Verdict:
    """Counts of one round under other rules; None where the record does not determine them."""

    accepted: int | None
    accepted_at_least: int
    tokens: int | None
    """Committed tokens: the accepted ones and the target's own, up to the end of the text."""
    tokens_at_least: int
    drafted: int | None
    drafted_at_least: int


def replayed(event: Round, rules: AdaptiveTree) -> Verdict | None:
    """What these rules would have done in a recorded round; None for a round without DynaTree's tree.

    Under the rules of the record itself the verdict is the record, but for a case that an event cannot tell from
    others: the context had no room for a deeper tree.
    """
    rounds = what_if._newest([event])
    if not rounds:
        return None
    found = replay(TreeRecord(rounds), rules.rule())
    accepted, drafted = int(found.accepted[0]), int(found.drafted[0])
    tokens = int(found.tokens[0])
    return Verdict(
        accepted=accepted if found.accepted_known[0] else None,
        accepted_at_least=accepted,
        tokens=tokens if found.tokens_known[0] else None,
        tokens_at_least=tokens,
        drafted=drafted if found.drafted_known[0] else None,
        drafted_at_least=drafted,
    )
