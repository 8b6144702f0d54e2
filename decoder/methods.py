"""Every decoding method by name: the registry that command line, race and screen read.

Importing it imports no torch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from decoder.config import RulesName, RunConfig
from decoder.errors import ConfigError, shortened

if TYPE_CHECKING:
    from decoder.engine import Engine
    from decoder.session.protocol import Session


Open: TypeAlias = "Callable[[Engine, Sequence[int], RunConfig], Session]"


@dataclass(frozen=True)
class Method:
    """How one method is called, described and opened."""

    name: str
    title: str
    """One line for help texts."""
    rules: RulesName | None
    """The parameter set of a run that it obeys; None: it has no parameters."""
    open: Open
    """(engine, prompt ids, parameters) -> a session that has read nothing yet."""

    def parameters(self, config: RunConfig) -> dict[str, Any]:
        """All its parameters, as a recording keeps them."""
        return asdict(config.rules(self.rules)) if self.rules else {}


def _alg1(engine: "Engine", prompt_ids: Sequence[int], config: RunConfig) -> "Session":
    from decoder.session.algorithm1 import Algorithm1Session

    return Algorithm1Session(engine.pair, prompt_ids, config.max_new_tokens, config.dynatree)


def _hf(engine: "Engine", prompt_ids: Sequence[int], config: RunConfig) -> "Session":
    from decoder.session.hf_assisted import AssistedSession

    return AssistedSession(engine.pair, prompt_ids, config.max_new_tokens)


def _by_rules(name: RulesName | None) -> Open:
    return lambda engine, ids, config: engine.session(ids, config.max_new_tokens, config.rules(name) if name else None)


_ALL = (
    Method("dynatree", "adaptive tree by its knobs", "dynatree", _by_rules("dynatree")),
    Method("auto", "adaptive tree of as many nodes as pay", "auto", _by_rules("auto")),
    Method("ar", "autoregressive: one token a round, the baseline", None, _by_rules(None)),
    Method("linear", "a chain of K drafted tokens", "linear", _by_rules("linear")),
    Method("fixed", "a tree of fixed depth and branching", "fixed", _by_rules("fixed")),
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
