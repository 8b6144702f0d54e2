"""Every decoding method by name: the registry that command line, race and screen read.

Importing it imports no torch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from decoder.config import Rules, RulesName, RunConfig, tree_rule
from decoder.errors import ConfigError, shortened

if TYPE_CHECKING:
    from decoder.models.pair import Pair
    from decoder.session.protocol import Session


@dataclass(frozen=True)
class Method:
    """How one method is called, described and opened."""

    name: str
    title: str
    """One line for help texts."""
    rules: RulesName | None
    """The parameter set of a run that it obeys; None: it has no parameters."""
    open: "Callable[[Pair, Sequence[int], RunConfig], Session]"
    """(pair, prompt ids, parameters) -> a session that has read nothing yet."""

    def parameters(self, config: RunConfig) -> dict[str, Any]:
        """All its parameters, as a recording keeps them."""
        return asdict(config.rules(self.rules)) if self.rules else {}


def _with_rules(pair: "Pair", prompt_ids: Sequence[int], config: RunConfig, rules: Rules | None) -> "Session":
    from decoder.session.cuda_graph.session import ResidentSession
    from decoder.session.cuda_graph.static_shapes import fits
    from decoder.session.host import TreeSession

    if pair.target.device.type != "cuda" or pair.exact or pair.seats.refused or not fits(tree_rule(rules)):
        return TreeSession(pair, prompt_ids, config, rules)
    return ResidentSession(pair, prompt_ids, config, rules)


def _alg1(pair: "Pair", prompt_ids: Sequence[int], config: RunConfig) -> "Session":
    from decoder.session.algorithm1 import Algorithm1Session

    return Algorithm1Session(pair, prompt_ids, config)


def _hf(pair: "Pair", prompt_ids: Sequence[int], config: RunConfig) -> "Session":
    from decoder.session.hf_assisted import AssistedSession

    return AssistedSession(pair, prompt_ids, config)


_ALL = (
    Method("dynatree", "adaptive tree by its knobs", "dynatree", lambda p, i, c: _with_rules(p, i, c, c.dynatree)),
    Method("auto", "adaptive tree of as many nodes as pay", "auto", lambda p, i, c: _with_rules(p, i, c, c.auto)),
    Method("ar", "autoregressive: one token a round, the baseline", None, lambda p, i, c: _with_rules(p, i, c, None)),
    Method("linear", "a chain of K drafted tokens", "linear", lambda p, i, c: _with_rules(p, i, c, c.linear)),
    Method("fixed", "a tree of fixed depth and branching", "fixed", lambda p, i, c: _with_rules(p, i, c, c.fixed)),
    Method("alg1", "DynaTree's Algorithm 1 as printed: two target passes", "dynatree", _alg1),
    Method("hf", "transformers' assisted generation", None, _hf),
)

METHODS: Mapping[str, Method] = {method.name: method for method in _ALL}


def chosen(names: Sequence[str]) -> list[Method]:
    """The methods of these names, in their order.

    Raises:
        ConfigError: There is none of that name.
    """
    if unknown := [name for name in names if name not in METHODS]:
        raise ConfigError(f"no method {shortened(', '.join(unknown))}; choose from {', '.join(METHODS)}")
    return [METHODS[name] for name in names]
