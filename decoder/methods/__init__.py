"""Registry of decoding methods; each method is defined in a file of this folder. Imports no torch."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from decoder.errors import ConfigError, quoted, require, shortened
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
    streaming,
)
from decoder.methods.method import SAMPLING_OPTIONS, Method, Option
from decoder.sampling.settings import SAMPLING, Sampling

METHODS: dict[str, Method] = {}
"""Methods by name, in the order of help texts; `register` adds a method."""
SIDE_A = ":A"
"""Suffix of a lane's name in a comparison of two parameter sets of one method. The lane with this suffix is side A and
has its own parameter set, which is stored under the lane's name; the lane with the method's name is side B.
"""
WHOLE = sys.maxsize
"""Value of `same_until` if all tokens of a text must equal the tokens of `ar`; larger than any text's length."""


def register(method: Method) -> None:
    """Adds a method. Raises ValueError if its name, option or knob is in use, or if `obeys` is an unknown method."""
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


def method_of(name: str) -> Method | None:
    """The method that decodes in a lane with this name; None for an unknown name."""
    return METHODS.get(name) or METHODS.get(name.removesuffix(SIDE_A))


def chosen(names: Sequence[str]) -> list[Method]:
    """Methods of the lanes with these names. Raises ConfigError for an unknown name."""
    found = [(name, method_of(name)) for name in names]
    if unknown := [name for name, method in found if method is None]:
        missing = shortened(", ".join(map(quoted, unknown)))
        raise ConfigError(f"there is no method {missing}; choose from {', '.join(METHODS)}")
    return [_lane_method(name, method) for name, method in found if method]


def _lane_method(name: str, method: Method) -> Method:
    """For a lane of side A, a copy of the method under the lane's name, so that the lane has its own parameters."""
    if name in METHODS:
        return method
    owner = METHODS[method.rules or method.name]
    require(owner.own is not None, f"{method.name} has no parameters, so its settings cannot be compared", "methods")
    return replace(method, name=name, own=owner.own, sampled=owner.sampled, obeys=None)


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
    """Names of the methods that run in a race if --methods is not given."""
    return tuple(name for name, method in METHODS.items() if method.races)


def all_knobs() -> Mapping[KnobName, KnobInfo]:
    """All knobs by name: first the knobs of the methods, in the order of `METHODS`, then the knobs of sampling."""
    of_methods = (knob for method in METHODS.values() for knob in method.knobs)
    return {knob.name: knob for knob in (*of_methods, *Sampling.knobs)}


def require_knobs(names: Iterable[KnobName]) -> None:
    """Raises ConfigError for an unknown name."""
    known = all_knobs()
    unknown = [name for name in names if name not in known]
    require(not unknown, f"no knob is called {shortened(', '.join(unknown))}; choose from {', '.join(known)}")


def options_of(name: RulesName) -> tuple[Option, ...]:
    """Options that set the parameters of a method, or those of sampling."""
    return METHODS[name].options if name in METHODS else SAMPLING_OPTIONS


def defaults(temperature: float, lanes: Iterable[str] = ()) -> dict[RulesName, TunableParameters]:
    """Default parameter sets by name; `lanes`: names of lanes that have parameter sets of their own."""
    methods = METHODS | {method.name: method for method in chosen([*lanes])}
    by_method = ((name, method.defaults(temperature)) for name, method in methods.items())
    return {SAMPLING: Sampling(temperature), **{name: rules for name, rules in by_method if rules is not None}}


def base(name: RulesName, rules: TunableParameters) -> TunableParameters:
    """Parameters to which `rules` are compared: command lines and settings state only values that differ from these."""
    return METHODS[name].base(rules) if name in METHODS else Sampling()


def root_is_drafted(method: str) -> bool:
    """Whether node 0 of the method's trees is a drafted token; False for an unknown method."""
    known = method_of(method)
    return known is not None and known.root_is_drafted


def draws_alone(method: str) -> bool:
    """Whether a method samples with its own noise, so that its text may differ from the text of `ar`."""
    known = method_of(method)
    return known is not None and known.own_noise


def same_until(method: str, parameters: Mapping[str, Any], prompt_tokens: int) -> int | None:
    """Number of first tokens that must equal the first tokens of `ar` at equal noise; None if the number is unknown."""
    known = method_of(method)
    return known.same_until(parameters, prompt_tokens) if known and known.same_until else WHOLE


for _module in (dynatree, auto, ar, linear, fixed, bestfirst, eagle2, delayed, streaming, alg1, hf):
    register(_module.METHOD)
