"""Registry of decoding methods by name. The race, command line, settings, screen and documentation read it.

Each method is one file of this folder. Importing the registry does not import torch.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from decoder.errors import ConfigError, require, shortened
from decoder.knobs import KnobInfo, KnobName, RulesName, TunableParameters
from decoder.methods import alg1, ar, auto, bestfirst, delayed, dynatree, fixed, hf, linear, sampling, streaming
from decoder.methods.method import Method
from decoder.methods.option import Option
from decoder.sampling.settings import SAMPLING, Sampling

METHODS: dict[str, Method] = {}
"""Methods by name, in the order of help texts; `register` adds a method."""
WHOLE = sys.maxsize
"""Result of `same_until` if all tokens of a text must equal the tokens of `ar`. It is larger than the length of any
text.
"""


def register(method: Method) -> None:
    """Adds a method; raises ValueError if its name, an option or a knob is already in use, or if the method uses the
    parameters of an unknown method.
    """
    taken = {option.name for other in METHODS.values() for option in other.options}
    known = all_knobs()
    for what, clash in (
        ("method", {method.name} & METHODS.keys()),
        ("option", {option.name for option in method.options} & taken),
        ("knob", {knob.name for knob in method.knobs if known.get(knob.name, knob) is not knob}),
    ):
        if clash:
            raise ValueError(f"{what} {', '.join(sorted(clash))} is already in use; give the new {what} another name")
    if method.obeys is not None and method.obeys not in METHODS:
        raise ValueError(
            f"{method.name} uses the parameters of {method.obeys}, which is not a method; register that method first"
        )
    METHODS[method.name] = method


def chosen(names: Sequence[str]) -> list[Method]:
    """Methods by name, in the order given; raises ConfigError for an unknown name."""
    if unknown := [name for name in names if name not in METHODS]:
        raise ConfigError(f"there is no method {shortened(', '.join(unknown))}; choose from {', '.join(METHODS)}")
    return [METHODS[name] for name in names]


def require_model_free(names: Sequence[str]) -> None:
    """Raises ConfigError if one of these methods needs a draft model."""
    needing = [method.name for method in chosen(names) if method.needs_model]
    require(
        not needing,
        f"{', '.join(needing)} cannot run without a draft model (suffix lookup and drafting heads are not draft "
        f"models); leave {', '.join(needing)} out of --methods, or name a model with --draft",
        "methods",
    )


def require_shared_tokens(names: Sequence[str], draft: str) -> None:
    """Raises ConfigError if one of these methods needs a draft model with the target's tokens. `draft` is the name of
    the run's draft, which has other tokens.
    """
    needing = [method.name for method in chosen(names) if method.needs_model]
    require(
        not needing,
        f"{', '.join(needing)} cannot use {draft}: its tokenizer is not the target's, so it drafts chains, which "
        "are translated through text and lack the probabilities of other tokens; leave "
        f"{', '.join(needing)} out of --methods, or name a draft of the target's family",
        "methods",
    )


def racing() -> tuple[str, ...]:
    """Names of the methods that run in the race when --methods is not given."""
    return tuple(name for name, method in METHODS.items() if method.races)


def all_knobs() -> Mapping[KnobName, KnobInfo]:
    """All knobs by name: first the knobs of the methods, in the order of `METHODS`, then the knobs of sampling."""
    of_methods = (knob for method in METHODS.values() for knob in method.knobs)
    return {knob.name: knob for knob in (*of_methods, *Sampling.knobs)}


def require_knobs(names: Iterable[KnobName]) -> None:
    """Raises ConfigError if one of these names is not the name of a knob."""
    known = all_knobs()
    unknown = [name for name in names if name not in known]
    require(not unknown, f"no knob is called {shortened(', '.join(unknown))}; choose from {', '.join(known)}")


def options_of(name: RulesName) -> tuple[Option, ...]:
    """Options that set the parameters of a parameter set, which belongs to a method or to sampling."""
    return METHODS[name].options if name in METHODS else sampling.OPTIONS


def defaults(temperature: float) -> dict[RulesName, TunableParameters]:
    """Default parameters of all methods and of sampling, for a run at this temperature."""
    by_method = ((name, method.defaults(temperature)) for name, method in METHODS.items())
    return {SAMPLING: Sampling(temperature), **{name: rules for name, rules in by_method if rules is not None}}


def base(name: RulesName, rules: TunableParameters) -> TunableParameters:
    """Reference values of a parameter set; command lines and settings state only differences from these values."""
    return METHODS[name].base(rules) if name in METHODS else Sampling()


def root_is_drafted(method: str) -> bool:
    """Whether node 0 of a method's trees is a drafted token; False for an unknown method."""
    return method in METHODS and METHODS[method].root_is_drafted


def draws_alone(method: str) -> bool:
    """Whether a method samples with its own noise, so that its text differs from the text of `ar`; False for an unknown
    method.
    """
    return method in METHODS and METHODS[method].own_noise


def same_until(method: str, parameters: Mapping[str, Any], prompt_tokens: int) -> int | None:
    """How many tokens at the start of a method's text must equal the tokens of `ar` with the same noise.

    `WHOLE` if the method does not define this number; None if the parameters do not determine it.
    """
    rule = METHODS[method].same_until if method in METHODS else None
    return rule(parameters, prompt_tokens) if rule else WHOLE


for _module in (dynatree, auto, ar, linear, fixed, bestfirst, delayed, streaming, alg1, hf):
    register(_module.METHOD)
