"""Scores drafts at every place (token position) of a text: whether the target accepts a drafted token, the rank of the
target's token by the draft's logits, and the draft's confidence.

A text is written by the target, or is a given answer, which the target reads (teacher forcing). At each place, the
target chooses a token, given the text before the place: in a text that the target wrote, the text's token; in an
answer, the most probable token or a sampled token. A drafted token is right if the target chooses it; at T > 0, this is
rejection sampling with a one-hot draft distribution. If the target (distribution p) chooses z, a token sampled from the
draft (distribution q) is accepted with probability min(1, q(z) / p(z)); the mean over z is the sum of min(p, q).

A token of a chain counts only if all earlier tokens of the chain were accepted and thus equal the text. A draft model
reads only tokens, so one pass over the text gives the acceptances of all chains. A head reads its own states after the
first token of a chain, and lookup copies a whole chain, so both must draft a chain at every place.

In texts that the target wrote, the scores are those of decoding. In an answer, they are approximate: where the target
chooses another token than the answer's, the chain's next token is scored after the answer's token.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from decoder.draft.draft_passes import DraftPasses, Passes
from decoder.draft.lookup import LookupDrafter
from decoder.engine import Engine
from decoder.forward.language_model import LanguageModel
from decoder.forward.taps import LayerStates
from decoder.heads.parts import StatesReader
from decoder.methods.linear import Linear
from decoder.models.pair import Pair
from decoder.sampling.settings import Sampling, Schedule
from decoder.sampling.truncation import probabilities
from decoder.session.host import passes_of
from decoder.tree import TokenTree
from dynatui.lab.bench.protocol import endless
from dynatui.lab.tuning.survival import FIRST, Reals, ScoredPlaces, Whole
from dynatui.servers.profile_file import LONGEST_CHAIN

AT_ONCE = 32
"""Number of places that one pass scores; below llama.cpp's number of sequences, since each chain is a sequence."""

_LEAST = 1e-30
"""Replaces a target probability of 0, which rounding at the edge of truncation can give to a chosen token."""

Tokens: TypeAlias = Sequence[int]


@dataclass(frozen=True)
class ScoredText:
    prompt: Tokens
    tokens: Tokens
    places: int
    """Number of places at which a round may begin; they are the first places of the text."""
    chosen: Tokens
    """The target's choice at each place, given the tokens before it."""
    chosen_probs: Sequence[float]
    """Target probability of each token of `chosen`."""
    sampling: Sampling

    @property
    def whole(self) -> list[int]:
        return [*self.prompt, *self.tokens]


@torch.inference_mode()
def written(engine: Engine, prompt: Tokens, places: int, sampling: Sampling, seed: int) -> ScoredText:
    """A text that the target writes, of at most `places` tokens. `LONGEST_CHAIN` further tokens follow, even after an
    end token, so that chains from the last places are scored in full; servers draft them in full, too.
    """
    most = places + LONGEST_CHAIN
    session = endless(engine).sampled(seed, Schedule(sampling)).session(prompt, most, None)
    tokens = list[int]()
    try:
        session.prefill()
        while len(tokens) < most:
            tokens += session.step(()).committed
            ended = next((place + 1 for place, token in enumerate(tokens) if token in engine.pair.eos), places)
            most = min(ended, places) + LONGEST_CHAIN
    finally:
        session.close()
    tokens = tokens[:most]
    target = engine.pair.target
    known = [1.0] * most if sampling.greedy else _chosen(target, prompt, tokens, None, sampling)[1]
    return ScoredText(prompt, tokens, most - LONGEST_CHAIN, tokens, known, sampling)


@torch.inference_mode()
def given(pair: Pair, prompt: Tokens, answer: Tokens, places: int, sampling: Sampling, seed: int) -> ScoredText:
    """A given answer as the text, with the target's choices."""
    tokens = answer[: places + LONGEST_CHAIN]
    chosen, known = _chosen(pair.target, prompt, tokens, seed, sampling)
    return ScoredText(prompt, tokens, min(places, len(tokens)), chosen, known, sampling)


def _chosen(
    target: LanguageModel, prompt: Tokens, tokens: Tokens, seed: int | None, sampling: Sampling
) -> tuple[list[int], list[float]]:
    """The target's choices and their probabilities: tokens sampled with `seed`, or `tokens` itself without a seed."""
    generator = None if seed is None else torch.Generator(target.device).manual_seed(seed)
    whole, found, known = [*prompt, *tokens], list[int](), list[float]()
    passes = DraftPasses(target, target.width, len(whole))
    _read(passes, prompt)
    for start in range(0, len(tokens), AT_ONCE):
        end = min(len(tokens), start + AT_ONCE)
        logits, _ = passes.after_latest(whole[: len(prompt) + end - 1], end - start)
        probs = probabilities(logits, [sampling])
        own = _column(tokens[start:end], probs) if generator is None else probs.multinomial(1, generator=generator)
        found += own[:, 0].tolist()
        known += probs.gather(1, own)[:, 0].tolist()
    return found, known


def _column(tokens: Tokens, like: Tensor) -> Tensor:
    return torch.tensor(tokens, device=like.device)[:, None]


def _read(passes: Passes, prompt: Tokens) -> None:
    if len(prompt) > 1:
        passes.read(prompt[:-1])


@torch.inference_mode()
def scored(pair: Pair, text: ScoredText) -> ScoredPlaces:
    """Scores of a pair's draft at the places of a text."""
    if pair.looks_up:
        return _by_lookup(text)
    return _by_head(pair.target, pair.head, text) if pair.head else _by_model(pair, text)


def _by_lookup(text: ScoredText) -> ScoredPlaces:
    accepted, drafted = np.zeros((text.places, LONGEST_CHAIN)), np.zeros(text.places, np.int64)
    drafter, whole, rule = LookupDrafter(), text.whole, Linear(LONGEST_CHAIN).rule()
    for place in range(FIRST, text.places):
        chain = drafter.propose(whole[: len(text.prompt) + place], rule, LONGEST_CHAIN).tree.tokens[1:]
        drafted[place] = len(chain)
        for level, (token, right) in enumerate(zip(chain, text.chosen[place:], strict=False)):
            accepted[place, level] = token == right
    return ScoredPlaces(accepted, drafted, known=len(text.tokens), context=len(text.prompt))


def _by_model(pair: Pair, text: ScoredText) -> ScoredPlaces:
    """Reads the text as a path of tree nodes. A chain of the draft's own tokens branches off at each node, so one pass
    drafts a level of the chains at all places.
    """
    whole, before = text.whole, len(text.prompt)
    confidence, judged = np.zeros((text.places, LONGEST_CHAIN)), list[Reals]()
    passes = DraftPasses(pair.draft_model, pair.vocabulary, len(whole))
    _read(passes, text.prompt)
    for start in range(0, len(text.tokens), AT_ONCE):
        end = min(len(text.tokens), start + AT_ONCE)
        tree = TokenTree([whole[before + start - 1]])
        nodes = [0]
        for token in text.tokens[start : end - 1]:
            nodes.append(tree.add(nodes[-1], token, 0.0))
        passes.begin_tree()
        logits, _ = passes.after_level(tree, nodes)
        judged.append(_judged(logits, text, start))
        leaves, tokens = nodes[: max(0, text.places - start)], list[int]()
        for level in range(LONGEST_CHAIN if leaves else 0):
            if level:
                leaves = [tree.add(leaf, token, 0.0) for leaf, token in zip(leaves, tokens, strict=True)]
                logits, _ = passes.after_level(tree, leaves)
            tokens, confidence[start : start + len(leaves), level] = _best(logits[: len(leaves)])
        passes.commit(nodes)
    beyond = np.zeros((3, LONGEST_CHAIN))
    windows = sliding_window_view(np.hstack([*judged, beyond]), LONGEST_CHAIN, axis=1)[:, : text.places]
    return _scored(text, np.full(text.places, LONGEST_CHAIN), confidence, *windows)


def _by_head(target: LanguageModel, head: StatesReader, text: ScoredText) -> ScoredPlaces:
    whole, before = text.whole, len(text.prompt)
    states = _TextStates(head.target_layers)
    tapped, passes = target.tapped(states), passes_of(head, len(whole) + 2 * LONGEST_CHAIN, states)
    cache = tapped.new_cache(len(whole))
    if before > 1:
        tapped.read(cache, text.prompt[:-1])
        passes.read(text.prompt[:-1])
    tapped.read(cache, whole[before - 1 : before + text.places - 1])
    levels = min(LONGEST_CHAIN, passes.deepest)
    table, drafted = np.zeros((4, text.places, levels)), np.zeros(text.places, np.int64)
    for place in range(text.places):
        known = whole[: before + place]
        if place >= FIRST and passes.behind(known):
            drafted[place] = levels
            for level, found in enumerate(_levels(passes, text, place, levels, passes.after_text(known))):
                table[:, place, level] = found
        passes.commit([])
    return _scored(text, drafted, *table)


def _levels(passes: Passes, text: ScoredText, place: int, levels: int, logits: Tensor) -> Iterator[Reals]:
    """For each level, the confidence on a chain of the head's own tokens, and the scores (see `_judged`) on a chain of
    the text's tokens. The chains share nodes as long as their tokens are equal.
    """
    tree = TokenTree([text.tokens[place - 1]])
    of_text = own = 0
    passes.begin_tree()
    for level in range(levels):
        if level:
            logits, _ = passes.after_level(tree, list(dict.fromkeys((of_text, own))))
        known = place + level < len(text.tokens)
        judged = _judged(logits[:1], text, place + level)[:, 0] if known else np.zeros(3)
        (token,), confidence = _best(logits[-1:])
        yield np.append(confidence, judged)
        if level + 1 < levels:
            together = of_text == own
            following = text.tokens[place + level] if known else token
            of_text = tree.add(of_text, following, 0.0)
            own = of_text if together and token == following else tree.add(own, token, 0.0)


class _TextStates(LayerStates):
    """Target states of a whole text; each `take` returns and removes the rows that the head reads next."""

    def take(self, rows: Sequence[int]) -> Tensor:
        states, self._held = self._held, None
        assert states is not None, "a text is read before its states"  # noqa: S101 - a programmer's mistake
        self._taken += len(rows)
        self._held = states[len(rows) :]
        return states[: len(rows)]


def _best(logits: Tensor) -> tuple[list[int], Reals]:
    """Most probable token of each row, and its probability at T = 1."""
    confidence, tokens = logits.float().softmax(-1).max(-1)
    return tokens.tolist(), confidence.cpu().numpy()


def _judged(logits: Tensor, text: ScoredText, start: int) -> Reals:
    """Scores from the draft's logits at the places from `start` on, shape (3, places): whether the draft's token is the
    target's choice, the rank of the choice by the logits, and at T > 0 the acceptance probability of a sampled token.
    """
    rows, places = logits.float(), slice(start, start + len(logits))
    chosen = _column(text.chosen[places], rows)
    ranks = (rows > rows.gather(1, chosen)).sum(-1).cpu().numpy() + 1
    right, drawn = np.equal(_best(rows)[0], text.chosen[places]), np.zeros(len(rows))
    if not text.sampling.greedy:
        # Servers sample from the draft at the target's temperature, without truncation.
        draft_probs = probabilities(rows, [Sampling(text.sampling.temperature)]).gather(1, chosen)[:, 0].cpu().numpy()
        drawn = np.minimum(1, draft_probs / np.array(text.chosen_probs[places]).clip(_LEAST))
    return np.array([right, ranks, drawn])


def _scored(
    text: ScoredText, drafted: Whole, confidence: Reals, accepted: Reals, ranks: Reals, drawn: Reals
) -> ScoredPlaces:
    return ScoredPlaces(
        accepted,
        drafted,
        known=len(text.tokens),
        context=len(text.prompt),
        drawn=None if text.sampling.greedy else drawn,
        ranks=ranks.astype(np.int64),
        confidence=confidence,
    )
