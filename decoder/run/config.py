"""Configuration of a run. The classes of the parameter sets, with checks and defaults, are in `decoder.methods`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from decoder.errors import require
from decoder.knobs import KnobName, RulesName, TunableParameters
from decoder.methods import SIDE_A, defaults, racing
from decoder.sampling.settings import SAMPLING, Sampling
from decoder.verify.names import COUPLED, Drafting, VerifierRules

R = TypeVar("R", bound=TunableParameters)


@dataclass(frozen=True, init=False)
class RunConfig:
    """Methods, length limit, seed and parameters for decoding one prompt."""

    methods: tuple[str, ...]
    """Names from `decoder.methods.METHODS`, each at most once. The screen shows the text of the first method until the
    user chooses another method.
    """
    max_new_tokens: int
    seed: int
    """Seed of the sampling noise, which all methods share except those with noise of their own; see `Method.own_noise`.
    """
    chat: bool | None
    """Whether the tokenizer's chat template writes the text that the models read. True: for every prompt, with plain
    text as a user's message. False: never. None: only for conversations.
    """
    parameters: Mapping[RulesName, TunableParameters] = field(hash=False)
    """Parameter sets by name: a set for each method that has its own parameters, and `SAMPLING` for all methods."""

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
        chat: bool | None = None,
        parameters: Mapping[RulesName, TunableParameters] | None = None,
        **named_sets: TunableParameters,
    ) -> None:
        """Creates a configuration; arguments that are not given have defaults. A parameter set is given by its name, as
        in `linear=Linear(3)`.

        If the temperature is above 0, all methods sample tokens, from distributions truncated by `top_k` and `top_p`.
        `verifier` and `drafting` replace the parameters of the same names in `VerifierRules`. A method whose parameters
        are not given has its default parameters for the temperature. If `drafting` samples trees, the method for
        sampled trees is added to the default methods.

        Raises:
            ConfigError: A value is out of bounds, or no method has a parameter set with a given name.
        """
        given = {SAMPLING: Sampling(temperature, top_k, top_p), **(parameters or {}), **named_sets}
        lanes = [name for name in (*given, *(methods or ())) if name.endswith(SIDE_A)]
        usual = defaults(temperature, lanes)
        for name, rules in given.items():
            _require_known(name, usual)
            kind = type(usual[name])
            require(
                isinstance(rules, kind),
                f"the parameters of {name} have the type {type(rules).__name__}; give {kind.__name__}(...)",
            )
        sets = {**defaults(given[SAMPLING].knob("temperature"), lanes), **given}
        drawing, verifier_rules = _verifier_rules(sets)
        overrides = {"verifier": verifier, "drafting": drafting}
        verifier_rules = replace(
            verifier_rules, **{name: value for name, value in overrides.items() if value is not None}
        )
        names = methods if methods is not None else (*(drawing,) * verifier_rules.draws, *racing())
        sets[drawing] = verifier_rules.drawn() if drawing in names else verifier_rules
        require(bool(names), "no method was named; give at least one, for example --methods dynatree,ar")
        repeated = {name for name in names if names.count(name) > 1}
        twice = f"methods contains {', '.join(sorted(repeated))} more than once; name each method once"
        require(not repeated, twice, "methods")
        require(
            drawing in names or drafting is None or not verifier_rules.draws,
            f"drafting {verifier_rules.drafting} samples trees, but none of the methods {', '.join(names)} "
            f"samples trees; add {drawing} to --methods, or give --drafting tree",
            "drafting",
            "methods",
        )
        require(max_new_tokens >= 1, f"max_new_tokens is {max_new_tokens}; give 1 or more", "max_new_tokens")
        vars(self).update(methods=names, max_new_tokens=max_new_tokens, seed=seed, chat=chat)
        vars(self).update(parameters=MappingProxyType(sets))

    @property
    def sampling(self) -> Sampling:
        """Temperature, top-k and top-p."""
        return self.of(Sampling)

    @property
    def verifier(self) -> str:
        """`COUPLED`, or one of `VERIFIER_NAMES`."""
        return _verifier_rules(self.parameters)[1].verifier

    @property
    def drafting(self) -> str:
        """A value of `Drafting`."""
        return _verifier_rules(self.parameters)[1].drafting

    @property
    def draft_knows_noise(self) -> bool:
        """Whether deterministic trees, if a method drafts any, are drafted with the target's sampling noise."""
        return self.drafting != Drafting.TREE or self.verifier == COUPLED

    def rules(self, name: RulesName) -> TunableParameters:
        """The parameter set with this name.

        Raises:
            ConfigError: No parameter set has that name.
        """
        _require_known(name, self.parameters)
        return self.parameters[name]

    def of(self, kind: type[R]) -> R:
        """The first set of the class `kind`, for example `config.of(DynaTree)`."""
        return next(rules for rules in self.parameters.values() if type(rules) is kind)

    def turned(self, name: KnobName, value: float, rules_name: RulesName) -> "RunConfig":
        """This configuration after knob `name` of the parameter set `rules_name` has been set to `value`, clamped to
        the knob's bounds.

        Raises:
            ConfigError: The parameter set has no such knob, or `value` is NaN.
        """
        return self.with_rules(rules_name, self.rules(rules_name).turned(name, value))

    def with_rules(self, name: RulesName, rules: TunableParameters) -> "RunConfig":
        """This configuration with the parameter set `name` replaced by `rules`."""
        parameters = {**self.parameters, name: rules}
        return RunConfig(self.methods, self.max_new_tokens, self.seed, chat=self.chat, parameters=parameters)

    def compared(self, method: str, a: TunableParameters) -> "RunConfig":
        """This configuration for a comparison of two settings of one method: the method itself is side B, and a second
        lane with the parameters `a` is side A; of the other methods, only `ar` stays.

        Raises:
            ConfigError: The method is unknown or has no parameters.
        """
        lane = f"{method}{SIDE_A}"
        names = (method, lane, *(name for name in self.methods if name == "ar"))
        parameters = {**self.parameters, lane: a}
        return RunConfig(names, self.max_new_tokens, self.seed, chat=self.chat, parameters=parameters)


def _verifier_rules(sets: Mapping[RulesName, TunableParameters]) -> tuple[RulesName, VerifierRules]:
    """The parameter set that contains `verifier` and `drafting`."""
    return next((name, rules) for name, rules in sets.items() if isinstance(rules, VerifierRules))


def _require_known(name: RulesName, sets: Mapping[RulesName, TunableParameters]) -> None:
    require(name in sets, f"no method has parameters called {name}; choose from {', '.join(sets)}")
