"""Expected block efficiency of all tree shapes by closed forms, at roots along text sampled from the target.

A root is a position in the text from which a draft tree is sampled. At each root, all shapes share one set of sampled
draft tokens (common random numbers), and the closed forms are expectations over the random numbers of the verifier. All
roots have equal weight.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from decoder.draft.delayed_shape import DelayedTree
from decoder.errors import PromptError
from decoder.models.pair import Pair
from decoder.selector.chooser import Chooser
from decoder.selector.policy import LOOKED_BACK, Root
from decoder.verify.lossless.random_generator import PhiloxGenerator
from decoder.verify.lossless.statistics import acceptance_bound
from decoder.verify.lossless.verifiers import SOLVERS
from dynatui.lab.bench.sampling.log import BOUND, Expected
from dynatui.lab.bench.sampling.request import SamplingRequest, TextKey
from dynatui.lab.selector.labels import RootDraws, TextRoots

DIGITS = 6


def expected(
    pair: Pair,
    request: SamplingRequest,
    place: TextKey,
    prompt: Sequence[int],
    text: Sequence[int],
    chooser: Chooser | None = None,
) -> Expected:
    """Means over the roots in `text`, which the target sampled after `prompt`; raises PromptError if it has no root."""
    most = DelayedTree(request.k, request.length, request.length)
    lengths = range(len(prompt), len(prompt) + len(text), request.roots_every)
    ends = [end for end in lengths if end >= LOOKED_BACK and end + most.depth <= pair.context]
    if not ends:
        raise PromptError(f"prompt {place.prompt + 1} of {place.task} is too short to draft from; give a longer prompt")
    sampling, generator = (
        request.samplings[place.sampling],
        PhiloxGenerator(request.seed, request.places().index(place)),
    )
    roots = TextRoots(chooser.pair if chooser else pair, sampling, most, ends[-1], generator)
    whole, at_roots = [*prompt, *text], []
    for end in ends:
        root, drawn = roots.advance(whole[:end]), roots.drawn()
        tokens = {verifier: _by_shape(request, verifier, drawn) for verifier in request.verifiers}
        selected = _selected(request, chooser, root, tokens) if chooser else {}
        at_roots.append((tokens, selected, *_along_path(request, drawn)))
    tokens_of, selected_of, distances, acceptances = zip(*at_roots, strict=True)
    return Expected(
        place=place,
        roots=len(ends),
        tokens={verifier: _mean([each[verifier] for each in tokens_of]) for verifier in request.verifiers},
        selected={name: _mean([[each[name]] for each in selected_of])[0] for name in selected_of[0]},
        distance=_mean(distances),
        acceptance={name: _mean([each[name] for each in acceptances]) for name in acceptances[0]},
    )


def _by_shape(request: SamplingRequest, verifier: str, drawn: RootDraws) -> list[float]:
    """Expected block efficiency of each shape, in the order of `SamplingRequest.shapes`."""
    by_shape = dict(zip(drawn.draws.shapes, drawn.expected_tokens(verifier).tolist(), strict=True))
    return [by_shape[shape] for shape in request.shapes(verifier)]


def _selected(
    request: SamplingRequest, chooser: Chooser, root: Root, tokens: Mapping[str, list[float]]
) -> dict[str, float]:
    """Expected block efficiency of the shape that the selector chooses at this root, by verifier."""
    names = [contest.verifier for contest in request.selecting()]
    return {name: tokens[name][request.shapes(name).index(chooser.best(root, name))] for name in names}


def _along_path(request: SamplingRequest, drawn: RootDraws) -> tuple[list[float], dict[str, list[float]]]:
    """L1 distance of draft and target probabilities, and acceptance of each solver, by depth along one drafted path."""
    nodes = drawn.draws.trunk[: request.length + 1]
    levels = [(drawn.target_probs[node], drawn.draft_probs[node]) for node in nodes]
    acceptance = {
        name: [SOLVERS[name].acceptance_rate(target, draft, request.k) for target, draft in levels]
        for name in SOLVERS
        if name in request.verifiers
    }
    acceptance[BOUND] = [acceptance_bound(target, draft, request.k) for target, draft in levels]
    return [float(np.abs(target - draft).sum()) for target, draft in levels], acceptance


def _mean(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(round(float(value), DIGITS) for value in np.mean(rows, axis=0))
