"""A pair with --exact, and the same pair without: what rounds cost one tells nothing of the other."""

from dataclasses import replace

from decoder.forward.batch_invariant.size_search import refuse_float64
from decoder.models.compatibility import probe
from decoder.models.pair import Pair
from decoder.session.cuda_graph.slots import Seats


def exact_pair(pair: Pair) -> Pair:
    """The same pair with a target whose rows do not depend on each other.

    Raises:
        ConfigError: Its dtype leaves no room to be exact.
        PairError: This target cannot be run so.
    """
    refuse_float64(pair.target.dtype)
    target = pair.target.exact()
    probe(target, plain=pair.target)
    return replace(pair, target=target, exact=True, seats=Seats(), costs={})


def inexact_pair(pair: Pair) -> Pair:
    """The same pair, as fast as possible."""
    return replace(pair, target=pair.target.inexact(), exact=False, seats=Seats(), costs={})
