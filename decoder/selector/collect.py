"""Labelled roots from a user's prompts: texts are sampled, and at some of their tokens all shapes are judged at once.

Goes on where it was stopped: what is in the folder already is not made again, and each part has a seed of its own.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from decoder.draft.draft_passes import DraftPasses
from decoder.draft.tree_size.cost_profile import measured
from decoder.engine import Engine
from decoder.errors import PromptError, quoted, require
from decoder.forward.kv_cache import KvCache
from decoder.models.pair import Pair
from decoder.models.text import encode_prompt
from decoder.sampling.probabilities import probabilities
from decoder.sampling.settings import Sampling, Schedule
from decoder.selector import latency
from decoder.selector.actions import LONGEST, MOST_K, MOST_L1, MOST_L2
from decoder.selector.dataset import FORMAT, Manifest, Plan, Roots, begin, shard, write_shard
from decoder.selector.features import Root, scalars
from decoder.selector.labels import LABELLED, SharedDraws, expected_tokens
from decoder.selector.stored import fingerprint
from decoder.tree import TokenTree
from decoder.verify.lossless.batched.device_rows import draw
from decoder.verify.lossless.coins import Coins, PhiloxCoins

MEASURED_EVERY_S = 30.0
"""What rounds take is measured again after so long, since other programs come and go."""

MOST_SHARED = LONGEST + (MOST_L1 + 1) * (MOST_K - 1) * MOST_L2
"""Nodes that shapes share below one root."""


@dataclass(frozen=True)
class Progress:
    """How far collecting has come."""

    done: int
    """Parts that are in the folder."""
    total: int
    roots: int
    """Labelled by this process."""


def require_plan(plan: Plan) -> None:
    """Raises ConfigError where a verifier cannot be labelled, or a sampling setting is out of bounds."""
    for name in plan.verifiers:
        require(name in LABELLED, f"verifier {quoted(name)} cannot be labelled; choose from {', '.join(LABELLED)}")
    _ = plan.settings


def collect(engine: Engine, prompts: Sequence[str], plan: Plan, folder: Path) -> Iterator[Progress]:
    """Labels roots of texts that go on from prompts; yields after each part, a prompt at one setting.

    Raises:
        ConfigError: The folder holds another collection or cannot be written, or a verifier cannot be labelled.
        PromptError: A prompt does not fit.
    """
    require_plan(plan)
    pair, settings = engine.pair.observed(), plan.settings
    digest = hashlib.sha256("\0".join(prompts).encode()).hexdigest()
    begin(folder, Manifest(FORMAT, fingerprint(pair), plan, len(prompts), digest))
    total, roots = len(prompts) * len(settings), 0
    missing = [number for number in range(total) if not shard(folder, number).exists()]
    done, clock = total - len(missing), _Latency(engine.pair, plan)
    yield Progress(done, total, 0)
    for number in missing:
        prompt, setting = divmod(number, len(settings))
        seed = plan.seed + number
        text_ids = encode_prompt(pair.tokenizer, prompts[prompt], plan.new_tokens + LONGEST, pair.context, special=True)
        text = _sampled(engine, text_ids, plan.new_tokens, settings[setting], seed)
        labelled = list(_labelled(pair, text, len(text_ids), settings[setting], plan, seed))
        if labelled:
            write_shard(shard(folder, number), _joined(labelled, prompt, setting, clock.now()))
        done, roots = done + 1, roots + len(labelled)
        yield Progress(done, total, roots)
    if not (roots or any(shard(folder, number).exists() for number in range(total))):
        raise PromptError("no text went on for long enough to have a root; give other prompts or a smaller --every")


@dataclass(frozen=True)
class _Labelled:
    root: Root
    tokens: dict[str, Float[NDArray[np.float64], "A"]]


class _Latency:
    """What rounds take just now, by verifier."""

    def __init__(self, pair: Pair, plan: Plan) -> None:
        self._pair, self._plan = pair, plan
        self._measured_s = -MEASURED_EVERY_S
        self._found: dict[str, Float[NDArray[np.float64], S]] = {}

    def now(self) -> dict[str, Float[NDArray[np.float64], "S"]]:
        """Measured, if it was not lately."""
        if time.monotonic() - self._measured_s >= MEASURED_EVERY_S:
            passes = latency.passes(measured(self._pair, self._plan.new_tokens))
            for name in self._plan.verifiers:
                self._found[name] = passes.copy()
                self._found[name][latency.ROUND :] = latency.between_passes(
                    self._pair.vocabulary, name, self._plan.settings[0], self._pair.target.device
                )
            self._measured_s = time.monotonic()
        return self._found


def _sampled(engine: Engine, prompt_ids: Sequence[int], count: int, sampling: Sampling, seed: int) -> list[int]:
    """A prompt and how the target goes on."""
    session = engine.sampled(seed, Schedule(sampling)).session(prompt_ids, count, None)
    text = list(prompt_ids)
    session.prefill()
    finished = None
    while finished is None:
        outcome = session.step(())
        text += outcome.committed
        finished = outcome.finished
    session.close()
    return text


@torch.inference_mode()
def _labelled(
    pair: Pair, text: Sequence[int], prompt_length: int, sampling: Sampling, plan: Plan, seed: int
) -> Iterator[_Labelled]:
    """The roots of a text: not the tokens of its prompt."""
    target_cache = pair.target.new_cache(len(text) + 1 + MOST_SHARED)
    draft = DraftPasses(pair.draft, pair.vocabulary, len(text))
    coins = PhiloxCoins(seed, 1)
    for length in range(prompt_length + plan.every, len(text) + 1, plan.every):
        so_far = text[:length]
        target_logits = pair.known(pair.target.read(target_cache, so_far[target_cache.length : -1])[None])
        target_hidden = pair.target.hidden
        draft_logits, _ = draft.again_after(so_far, latency.LOOKED_BACK)
        rows = probabilities(torch.cat([target_logits, draft_logits]), [sampling] * (1 + latency.LOOKED_BACK))
        hidden = _hidden(target_hidden, draft.hidden)
        root = Root(rows[0], rows[1], rows[2], hidden, length, sampling)
        labels = [
            _labels(pair, target_cache, draft, so_far, sampling, plan.verifiers, coins) for _ in range(plan.trees)
        ]
        yield _Labelled(root, {name: np.mean([each[name] for each in labels], 0) for name in plan.verifiers})


def _hidden(target: Tensor | None, draft: Tensor | None) -> tuple[Tensor, ...]:
    return () if target is None or draft is None else (target[-1], draft[-2], draft[-1])


def _labels(
    pair: Pair,
    target_cache: KvCache,
    draft: DraftPasses,
    text: Sequence[int],
    sampling: Sampling,
    verifiers: Sequence[str],
    coins: Coins,
) -> dict[str, Float[NDArray[np.float64], "A"]]:
    """Expected block efficiency of all actions, by one draw."""
    draws = shared_draws(draft, text, sampling, coins)
    tree = draws.tree
    positions = [len(text) - 1 + depth for depth in tree.depths]
    logits = pair.known(pair.target.forward(target_cache, tree.tokens, positions, tree.visible()))
    target_cache.keep([])
    target_probs = probabilities(logits, [sampling] * len(tree)).double().cpu().numpy()
    draft_probs = np.zeros_like(target_probs)
    for node, drawn in (tree.draws or {}).items():
        draft_probs[node] = drawn.row.double().cpu().numpy()
    return {name: expected_tokens(draws, target_probs, draft_probs, name) for name in verifiers}


def shared_draws(draft: DraftPasses, text: Sequence[int], sampling: Sampling, coins: Coins) -> SharedDraws:
    """Draws the trees of all shapes below the last token of a text, level by level."""
    draft.begin_tree()
    tree = TokenTree([text[-1]], draws={})
    trunk, sides = [0], {l1: [list[int]() for _ in range(MOST_K - 1)] for l1 in range(MOST_L1 + 1)}
    for depth in range(LONGEST):
        growing = [side for l1, group in sides.items() for side in group if l1 <= depth < l1 + MOST_L2]
        ends = [trunk[-1], *(side[-1] if side else trunk[-1] for side in growing)]
        nodes = list(dict.fromkeys(ends))
        if depth:
            logits, _ = draft.after_level(tree, nodes)
        else:
            logits = draft.again_after(text, 1)[0]
        rows = probabilities(logits, [sampling] * len(nodes))
        drawn = draw(rows[torch.tensor([nodes.index(end) for end in ends]).to(rows.device)], coins).tolist()
        for end, token, rollout in zip(ends, drawn, [trunk, *growing], strict=True):
            row = rows[nodes.index(end)]
            rollout.extend(tree.draw(end, [token], [float(row[token].log())], row))
    draft.commit([])
    return SharedDraws(tree, trunk, sides)


def _joined(
    labelled: Sequence[_Labelled],
    prompt: int,
    setting: int,
    found: dict[str, Float[NDArray[np.float64], "S"]],
) -> Roots:
    first = next(iter(found.values()))
    seconds = float(first[latency.DRAFT.start]), float(first[latency.VERIFY.start])
    count, roots = len(labelled), [each.root for each in labelled]
    return Roots(
        tuple(torch.stack(rows) for rows in zip(*(root.hidden for root in roots), strict=True)),
        torch.stack([scalars(root, *seconds) for root in roots]),
        torch.full((count,), prompt),
        torch.full((count,), setting),
        {name: torch.from_numpy(np.stack([each.tokens[name] for each in labelled])) for name in found},
        {name: torch.from_numpy(rows).repeat(count, 1) for name, rows in found.items()},
    )
