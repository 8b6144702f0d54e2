"""What one run does with one prompt: its methods, its length, and the parameters of every method.

The parameters, with their checks and defaults, are those of `decoder.methods`; it knows by name only the one that draws
trees.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar, cast

from decoder.errors import require
from decoder.knobs import KnobName, RulesName, TunableParameters
from decoder.methods import METHODS, racing
from decoder.methods.adaptive import AdaptiveTree
from decoder.methods.auto import Auto
from decoder.methods.bestfirst import BestFirst
from decoder.methods.delayed import Delayed
from decoder.methods.dynatree import PRESETS, DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.methods.streaming import Streaming
from decoder.sampling.settings import SAMPLING, Sampling
from decoder.tree_rules import Rules, tree_rule
from decoder.verify.names import COUPLED, Drafting

__all__ = [
    "PRESETS",
    "AdaptiveTree",
    "Auto",
    "BestFirst",
    "Delayed",
    "DynaTree",
    "Fixed",
    "Linear",
    "Rules",
    "RulesName",
    "RunConfig",
]
__all__ += ["Sampling", "Streaming", "tree_rule"]

R = TypeVar("R", bound=TunableParameters)
DELAYED = "delayed"
"""The parameter set that names verifier and drafting, and the method that draws trees."""


@dataclass(frozen=True, init=False)
class RunConfig:
    """What one run does with one prompt."""

    methods: tuple[str, ...]
    """Names from `decoder.methods.METHODS`, without repetition. The first is watched until another is chosen."""
    max_new_tokens: int
    seed: int
    """Seed of the sampling noise: one seed gives one text, by every method."""
    chat: bool
    """Whether the prompt is one message of a user, wrapped in the tokenizer's chat template."""
    parameters: Mapping[RulesName, TunableParameters] = field(hash=False)
    """The parameter sets of all methods that have one, which others may obey too; and `SAMPLING`, which all obey."""

    def __init__(
        self,
        methods: tuple[str, ...] | None = None,
        max_new_tokens: int = 256,
        seed: int = 0,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        verifier: str | None = None,
        drafting: str | None = None,
        chat: bool = False,
        parameters: Mapping[RulesName, TunableParameters] | None = None,
        **own: TunableParameters,
    ) -> None:
        """Takes the usual methods and parameters where none are given; sets as keywords too: `linear=Linear(3)`.

        With a temperature, or with `top_k` and `top_p` besides, tokens are sampled, for all methods alike. `verifier`
        and `drafting` are those of `Delayed`; where trees are drawn, the method that draws them races too.

        Raises:
            ConfigError: A value is out of its bounds, or no method has such parameters.
        """
        sets: dict[RulesName, TunableParameters] = {SAMPLING: Sampling(temperature, top_k, top_p)}
        sets |= {name: method.own for name, method in METHODS.items() if method.own is not None}
        for name, rules in {**(parameters or {}), **own}.items():
            _require_known(name, sets)
            kind = type(sets[name])
            require(isinstance(rules, kind), f"{name} is a {type(rules).__name__}; give {kind.__name__}(...)")
            sets[name] = rules
        delayed = _delayed(sets[DELAYED], verifier, drafting)
        names = methods if methods is not None else (*(DELAYED,) * delayed.draws, *racing())
        sets[DELAYED] = delayed.drawn() if DELAYED in names else delayed
        require(bool(names), "no method was named; give at least one, for example --methods dynatree,ar")
        repeated = {name for name in names if names.count(name) > 1}
        require(not repeated, f"{', '.join(sorted(repeated))} named twice in methods; name each once")
        require(
            DELAYED in names or drafting is None or not delayed.draws,
            f"drafting {delayed.drafting} draws trees, which no method of {', '.join(names)} does; give {DELAYED} "
            "among --methods, or --drafting tree",
        )
        require(max_new_tokens >= 1, f"max_new_tokens is {max_new_tokens}; give 1 or more")
        vars(self).update(methods=names, max_new_tokens=max_new_tokens, seed=seed, chat=chat)
        vars(self).update(parameters=MappingProxyType(sets))

    @property
    def sampling(self) -> Sampling:
        """How tokens are chosen."""
        return self.of(Sampling)

    @property
    def verifier(self) -> str:
        """Name of the verifier: coupled or a lossless one."""
        return self.of(Delayed).verifier

    @property
    def drafting(self) -> str:
        """How trees for that verifier are drafted; a `Drafting`."""
        return self.of(Delayed).drafting

    @property
    def draft_knows_noise(self) -> bool:
        """Whether deterministic trees are drafted under the noise that the target's tokens are sampled with."""
        return self.drafting != Drafting.TREE or self.verifier == COUPLED

    def rules(self, name: RulesName) -> TunableParameters:
        """One of the parameter sets.

        Raises:
            ConfigError: There is none of that name.
        """
        _require_known(name, self.parameters)
        return self.parameters[name]

    def of(self, kind: type[R]) -> R:
        """The parameter set of a kind, the first where methods have several: `config.of(DynaTree).n_max`."""
        return next(rules for rules in self.parameters.values() if type(rules) is kind)

    def turned(self, name: KnobName, value: float, of: RulesName) -> "RunConfig":
        """This run with one knob of one parameter set turned within its bounds.

        Raises:
            ConfigError: There is no such knob, or `value` is no number.
        """
        return self.with_rules(of, self.rules(of).turned(name, value))

    def with_rules(self, name: RulesName, rules: TunableParameters) -> "RunConfig":
        """This run with another parameter set under a name."""
        parameters = {**self.parameters, name: rules}
        return RunConfig(self.methods, self.max_new_tokens, self.seed, chat=self.chat, parameters=parameters)


def _delayed(rules: TunableParameters, verifier: str | None, drafting: str | None) -> Delayed:
    given = {name: value for name, value in (("verifier", verifier), ("drafting", drafting)) if value is not None}
    return cast("Delayed", replace(rules, **given))


def _require_known(name: RulesName, sets: Mapping[RulesName, TunableParameters]) -> None:
    require(name in sets, f"no method has parameters called {name}; choose from {', '.join(sets)}")
