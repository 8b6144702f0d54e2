"""Registry of decoding methods, each a file of this folder, for everything outside; imports no torch."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from decoder.errors import ConfigError, require, shortened
from decoder.knobs import KnobInfo, KnobName, RulesName, TunableParameters
from decoder.methods import (
    alg1,
    ar,
    auto,
    bestfirst,
    delayed,
    dynatree,
    eagle2,
    fixed,
    hf,
    linear,
    sampling,
    streaming,
)
from decoder.methods.method import Method
from decoder.methods.option import Option
from decoder.sampling.settings import SAMPLING, Sampling

METHODS: dict[str, Method] = {}
"""In the order of help texts; `register` adds a method."""
WHOLE = sys.maxsize
"""`same_until` of a text whose tokens must all equal those of `ar`; larger than any text's length."""


def register(method: Method) -> None:
    """Raises ValueError if its name, an option or a knob is taken, or it uses the parameters of an unknown method."""
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
    """Raises ConfigError for an unknown name."""
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
    """Raises ConfigError if one of these methods needs a draft model with the target's tokens, which `draft` lacks."""
    needing = [method.name for method in chosen(names) if method.needs_model]
    require(
        not needing,
        f"{', '.join(needing)} cannot use {draft}: its tokenizer is not the target's, so it drafts chains, which "
        "are translated through text and lack the probabilities of other tokens; leave "
        f"{', '.join(needing)} out of --methods, or name a draft of the target's family",
        "methods",
    )


def racing() -> tuple[str, ...]:
    """Names of the methods of a race without --methods."""
    return tuple(name for name, method in METHODS.items() if method.races)


def all_knobs() -> Mapping[KnobName, KnobInfo]:
    """First those of the methods, in the order of `METHODS`, then those of sampling."""
    of_methods = (knob for method in METHODS.values() for knob in method.knobs)
    return {knob.name: knob for knob in (*of_methods, *Sampling.knobs)}


def require_knobs(names: Iterable[KnobName]) -> None:
    """Raises ConfigError for an unknown name."""
    known = all_knobs()
    unknown = [name for name in names if name not in known]
    require(not unknown, f"no knob is called {shortened(', '.join(unknown))}; choose from {', '.join(known)}")


def options_of(name: RulesName) -> tuple[Option, ...]:
    """Of a method's parameters or those of sampling."""
    return METHODS[name].options if name in METHODS else sampling.OPTIONS


def defaults(temperature: float) -> dict[RulesName, TunableParameters]:
    by_method = ((name, method.defaults(temperature)) for name, method in METHODS.items())
    return {SAMPLING: Sampling(temperature), **{name: rules for name, rules in by_method if rules is not None}}


def base(name: RulesName, rules: TunableParameters) -> TunableParameters:
    """Reference values, from which command lines and settings state only differences."""
    return METHODS[name].base(rules) if name in METHODS else Sampling()


def root_is_drafted(method: str) -> bool:
    """False for an unknown method."""
    return method in METHODS and METHODS[method].root_is_drafted


def draws_alone(method: str) -> bool:
    """Whether a method samples with its own noise, so that its text differs from that of `ar`."""
    return method in METHODS and METHODS[method].own_noise


def same_until(method: str, parameters: Mapping[str, Any], prompt_tokens: int) -> int | None:
    """First tokens that must equal those of `ar` with the same noise; None if the parameters do not determine it."""
    rule = METHODS[method].same_until if method in METHODS else None
    return rule(parameters, prompt_tokens) if rule else WHOLE


for _module in (dynatree, auto, ar, linear, fixed, bestfirst, eagle2, delayed, streaming, alg1, hf):
    register(_module.METHOD)
