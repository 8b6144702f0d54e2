"""Block efficiency of every shape at once, by closed forms, at roots along the target's own sampled text.

At each root all shapes share one set of draws (common random numbers), and no coin of a verifier adds noise. Every root
is weighed alike.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from decoder.bench.sampling.asked import Asked, Place
from decoder.bench.sampling.log import BOUND, Expected
from decoder.draft.delayed_shape import DelayedTree
from decoder.errors import PromptError
from decoder.models.pair import Pair
from decoder.selector.chooser import Chooser
from decoder.selector.features import LOOKED_BACK, Root
from decoder.selector.text_roots import RootDraws, TextRoots
from decoder.verify.lossless.acceptance_bound import acceptance_bound
from decoder.verify.lossless.random_generator import PhiloxGenerator
from decoder.verify.lossless.verifiers import SOLVERS

DIGITS = 6
"""Decimals that are kept of a mean."""


def expected(
    pair: Pair, asked: Asked, place: Place, prompt: Sequence[int], text: Sequence[int], chooser: Chooser | None = None
) -> Expected:
    """What closed forms say of a prompt and the text that the target went on with.

    Raises:
        PromptError: There is no root.
    """
    most = DelayedTree(asked.k, asked.length, asked.length)
    lengths = range(len(prompt), len(prompt) + len(text), asked.roots_every)
    ends = [end for end in lengths if end >= LOOKED_BACK and end + most.depth <= pair.context]
    if not ends:
        raise PromptError(f"prompt {place.prompt + 1} of {place.task} is too short to begin from; give a longer one")
    sampling, generator = asked.samplings[place.sampling], PhiloxGenerator(asked.seed, asked.places().index(place))
    roots = TextRoots(chooser.pair if chooser else pair, sampling, most, ends[-1], generator)
    whole, found = [*prompt, *text], []
    for end in ends:
        root, drawn = roots.advance(whole[:end]), roots.drawn()
        tokens = {verifier: _by_shape(asked, verifier, drawn) for verifier in asked.verifiers}
        selected = _selected(asked, chooser, root, tokens) if chooser else {}
        found.append((tokens, selected, *_along_path(asked, drawn)))
    tokens_of, selected_of, distances, acceptances = zip(*found, strict=True)
    return Expected(
        place=place,
        roots=len(ends),
        tokens={verifier: _mean([each[verifier] for each in tokens_of]) for verifier in asked.verifiers},
        selected={name: _mean([[each[name]] for each in selected_of])[0] for name in selected_of[0]},
        distance=_mean(distances),
        acceptance={name: _mean([each[name] for each in acceptances]) for name in acceptances[0]},
    )


def _by_shape(asked: Asked, verifier: str, drawn: RootDraws) -> list[float]:
    """Block efficiency of each shape that a verifier is compared on."""
    by_shape = dict(zip(drawn.draws.shapes, drawn.expected_tokens(verifier).tolist(), strict=True))
    return [by_shape[shape] for shape in asked.shapes(verifier)]


def _selected(asked: Asked, chooser: Chooser, root: Root, tokens: Mapping[str, list[float]]) -> dict[str, float]:
    """By verifier, block efficiency of the shape that is chosen for it at this root."""
    names = [contest.verifier for contest in asked.selecting()]
    return {name: tokens[name][asked.shapes(name).index(chooser.best(root, name))] for name in names}


def _along_path(asked: Asked, drawn: RootDraws) -> tuple[list[float], dict[str, list[float]]]:
    """By depth along a tree's path, the distance of the rows and every solver's acceptance (the paper, figure 1)."""
    nodes = drawn.draws.trunk[: asked.length + 1]
    levels = [(drawn.target_probs[node], drawn.draft_probs[node]) for node in nodes]
    acceptance = {
        name: [SOLVERS[name].acceptance_rate(target, draft, asked.k) for target, draft in levels]
        for name in SOLVERS
        if name in asked.verifiers
    }
    acceptance[BOUND] = [acceptance_bound(target, draft, asked.k) for target, draft in levels]
    return [float(np.abs(target - draft).sum()) for target, draft in levels], acceptance


def _mean(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(round(float(value), DIGITS) for value in np.mean(rows, axis=0))
