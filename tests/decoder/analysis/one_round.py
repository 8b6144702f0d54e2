"""One recorded round replayed under other rules, as exact counts or lower bounds."""

from dataclasses import dataclass

from decoder.analysis import what_if
from decoder.analysis.rule_replay import TreeRecord, replay_rounds
from decoder.events import Round
from decoder.methods.adaptive import AdaptiveTree


@dataclass(frozen=True)
class Verdict:
    """Counts of one round under other rules; a count is None where the record does not determine it."""

    accepted: int | None
    accepted_at_least: int
    tokens: int | None
    """Committed tokens: the accepted ones and the bonus token, up to the end of the text."""
    tokens_at_least: int
    drafted: int | None
    drafted_at_least: int


def replayed(event: Round, rules: AdaptiveTree) -> Verdict | None:
    """Counts of a recorded round under `rules`; None if the round has no DynaTree tree.

    Under the recorded rules, the verdict equals the record, except where the context had no room for a deeper tree: an
    event does not show this case.
    """
    rounds = what_if._newest([event])
    if not rounds:
        return None
    found = replay_rounds(TreeRecord(rounds), rules.rule())
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
