"""A deployment, and an engine that turns it into commands. Independent of individual engines."""

import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec
from msgspec import structs

from decoder.models.names import DraftKind, revision

Rule: TypeAlias = Literal["greedy", "probabilistic"]
"""How drafts are chosen at T > 0: the most probable tokens, or tokens drawn from the draft's distribution."""
WITHIN: tuple[DraftKind, ...] = ("mtp", "lookup")
"""Kinds of drafts without weights of their own."""


class Band(msgspec.Struct, frozen=True):
    first: int
    last: int
    """`first` and `last` are the ends of the band, in running requests; both are included."""
    k: int
    """Drafted tokens per round; 0: no drafts."""


class Tree(msgspec.Struct, frozen=True):
    steps: int
    topk: int
    """Children of a node."""
    tokens: int
    """Number of tokens that the target verifies, including the root's."""


class Deployment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    target: str
    draft: str
    kind: DraftKind
    levels_at_once: int = 1
    k: int
    """The largest number of drafted tokens per round; 0: no drafts."""
    bands: tuple[Band, ...] = ()
    """Drafted tokens by load, from 1 running request on; empty if the engine drafts `k` tokens at every load."""
    most: int
    """Largest number of running requests."""
    survival: tuple[float, ...]
    """Survival rates of chains of `k` tokens."""
    length: float
    """Predicted mean tokens per round with chains of `k` tokens."""
    rule: Rule = "greedy"
    p_min: float | None = None
    """Least draft probability with which a token is drafted."""
    tree: Tree | None = None
    synthetic: bool = False
    """Whether tokens are accepted at random with the predicted rates, to measure the speed at this acceptance."""


class Paste(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Engine:
    name: str
    title: str
    version: str
    """Version of the engine whose option names are printed."""
    kinds: Collection[DraftKind]
    serve: Callable[[Deployment], Paste]
    synthetic: bool = False
    """Whether the engine can start a server of a `synthetic` deployment."""
    rules: tuple[Rule, ...] = ("greedy",)
    by_load: Collection[DraftKind] = ()
    """Kinds of drafts whose length may depend on the number of running requests."""
    trees: Collection[DraftKind] = ()
    stops: Collection[DraftKind] = ()
    """Kinds of drafts that the engine can end before an improbable token."""
    batches: bool = True
    """Whether the engine decodes several requests together while drafting."""


class Commands(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    engine: str
    version: str
    baseline: str
    advised: Paste | None = None
    synthetic: str | None = None
    tree: Paste | None = None
    """Options of a tree to try instead; None if no tree may be faster."""
    stopped: Paste | None = None
    """Options of drafts that end before improbable tokens; None if these are not faster."""

    def blocks(self) -> Iterator[tuple[str, str]]:
        """Title and text of each block to paste."""
        named = f"{self.engine} {self.version}"
        drafting = {"": self.advised, ", with p_min instead": self.stopped, ", a tree instead": self.tree}
        for variant, paste in drafting.items():
            if paste:
                yield "; ".join([f"{named}{variant}", *paste.notes]), paste.text
        yield f"{named}, without drafts, to measure against", self.baseline
        if self.synthetic:
            yield f"{named}, to measure the speed at the predicted acceptance, with any prompts", self.synthetic


def commands(engine: Engine, target: str, most: int, **deployments: Deployment) -> Commands:
    """`deployments` are named as the fields of `Commands`: advised, tree, stopped."""
    plain = Deployment(target=target, draft="", kind="model", k=0, most=most, survival=(), length=1.0)
    pastes = {name: engine.serve(deployment) for name, deployment in deployments.items()}
    synthetic = None
    if engine.synthetic and (advised := deployments.get("advised")):
        synthetic = engine.serve(structs.replace(advised, synthetic=True)).text
    baseline = engine.serve(plain).text
    return Commands(engine=engine.title, version=engine.version, baseline=baseline, synthetic=synthetic, **pastes)


def shell(*lines: Sequence[str]) -> str:
    """One shell command, with one line for each group of words."""
    return " \\\n  ".join(shlex.join(line) for line in lines if line)


def revised(model: str, option: str = "--revision") -> list[str]:
    version = revision(model)
    return [option, version] if version else []


def written(name: str, content: str) -> str:
    return f"cat > {name} <<'END'\n{content}\nEND\n"


def rates(survival: Sequence[float]) -> list[float]:
    return [round(rate, 4) for rate in survival]
