"""Slow and plain reference implementation of speculative decoding with draft trees.

A node is the tuple of drafted tokens on the path to it; () is the last committed token. Every distribution comes from a
new forward pass of the plain module over the whole sequence, without KV cache, mask or positions. Only parameter
objects are shared with the engine.

The algorithm compares real numbers with thresholds and with each other. If two numbers are nearly equal, rounding may
decide the comparison either way. Each round therefore has a `margin`: the smallest difference in its comparisons.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import torch

from decoder.knobs import KnobName
from decoder.methods.dynatree import DynaTree
from decoder.methods.eagle2 import Eagle2
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear

Path = tuple[int, ...]
Turns = Mapping[int, Sequence[tuple[KnobName, float]]]
"""Knobs that the user turned just before a round, by round number."""

IMPOSSIBLE = -1e4
"""Logit of ids that the draft lacks."""
AMBIGUOUS = 1e-5
"""Comparisons with a smaller difference may go either way."""


@dataclass
class Oracle:
    """Scores of the next token by target and draft, from new forward passes, over the target's ids.

    An id that the draft lacks is impossible for it; where the text has one, the draft reads its end-of-text token or 0.
    """

    target: Any
    draft: Any
    context: int
    eos: frozenset[int] = frozenset()
    _seen: dict[tuple[str, Path], torch.Tensor] = field(default_factory=dict)

    @property
    def width(self) -> int:
        return int(self.target.config.vocab_size)

    def target_scores(self, text: Path) -> list[float]:
        """The target's logits after `text`, in float32 as transformers' generate compares them."""
        scores: list[float] = self._scores("target", text).float().tolist()
        return scores

    def draft_logprobs(self, text: Path, drafted: int = 0, sharpness: float = 1) -> list[float]:
        """The draft's log-probabilities after `text`, softmax in float32; the last `drafted` tokens are guesses.

        In greedy decoding, the draft's probabilities have the exponent `sharpness`.
        """
        scores = self._draft_scores(text, drafted).float() * sharpness
        logprobs: list[float] = torch.log_softmax(scores, -1).tolist()
        return logprobs

    def _draft_scores(self, text: Path, drafted: int) -> torch.Tensor:
        del drafted  # a draft model treats guesses like other text
        return self._scores("draft", text)

    def _scores(self, which: str, text: Path) -> torch.Tensor:
        if (which, text) not in self._seen:
            model = getattr(self, which)
            known, instead = int(model.config.vocab_size), model.config.eos_token_id or 0
            ids = torch.tensor([[token if token < known else instead for token in text]])
            with torch.inference_mode():
                logits = model(ids, use_cache=False).logits[0, -1, : self.width]
            impossible = logits.new_full((max(0, self.width - known),), IMPOSSIBLE)
            self._seen[which, text] = torch.cat((logits, impossible))
        return self._seen[which, text]


@dataclass(frozen=True)
class Knobs:
    tau_h: float
    tau_l: float
    d0: float


@dataclass(frozen=True)
class Step:
    position: int
    tokens: list[int]
    parents: list[int]
    logprobs: list[float]
    accepted: list[int]
    committed: list[int]
    knobs: Knobs | None
    levels: int
    """Depth of the grown tree, before any selection."""
    margin: float


class Margin:
    """Smallest difference in the comparisons of a round."""

    def __init__(self) -> None:
        self.least = math.inf

    def note(self, distance: float) -> None:
        self.least = min(self.least, abs(distance))


@dataclass(frozen=True)
class Rules:
    """Growth rules of a tree: which nodes have children, how many, and the maximum number of nodes."""

    deepest: int
    expands: Callable[[Path, float], bool]
    breadth: Callable[[Sequence[float]], int]
    n_max: int
    best: bool = False
    sharpness: float = 1.0
    beam: int = 0
    """Nodes of a level that get children; 0: all that may still be among the best."""


def dynatree_rules(config: DynaTree, margin: Margin, *, root_depth: int = 0, bfs: bool = False) -> Rules:
    """Expands probable nodes, deep nodes only if very probable; the less certain the draft, the more children."""
    floor, base = max(config.rho_stop, config.tau), math.floor(config.d0 + 0.5)

    def expands(node: Path, logp: float) -> bool:
        p, depth = math.exp(logp), len(node) - root_depth
        if node and floor > 0:
            margin.note(p - floor)
        if p < floor:
            return False
        if depth < base:
            return True
        if config.rho_deep > 0:
            margin.note(p - config.rho_deep)
        return p >= config.rho_deep

    def breadth(logprobs: Sequence[float]) -> int:
        c = math.exp(max(logprobs))
        margin.note(c - config.tau_h)
        margin.note(c - config.tau_l)
        low, mid, high = config.branching
        return low if c >= config.tau_h else high if c < config.tau_l else mid

    best = config.selection == "best" and not bfs
    return Rules(config.d_max, expands, breadth, config.n_max, best=best, sharpness=config.sharpness)


def fixed_rules(config: Fixed, margin: Margin) -> Rules:
    """Every sufficiently probable node above the maximum depth gets the same number of children."""

    def expands(node: Path, logp: float) -> bool:
        if node and config.tau > 0:
            margin.note(math.exp(logp) - config.tau)
        return math.exp(logp) >= config.tau

    return Rules(config.depth, expands, lambda _: config.branching, config.n_max)


def linear_rules(config: Linear, margin: Margin) -> Rules:
    """Every node has one child, unless that is too improbable."""

    def breadth(logprobs: Sequence[float]) -> int:
        c = math.exp(max(logprobs))
        if config.p_min > 0:
            margin.note(c - config.p_min)
        return int(c >= config.p_min)

    return Rules(config.k, lambda _node, _logp: True, breadth, config.k)


def eagle2_rules(config: Eagle2) -> Rules:
    return Rules(
        config.steps, lambda _node, _logp: True, lambda _: config.topk, config.draft_tokens - 1, best=True,
        beam=config.topk,
    )  # fmt: skip


def none_rules() -> Rules:
    return Rules(0, lambda _node, _logp: False, lambda _: 0, 0)


def ranked(logprobs: Sequence[float], count: int, margin: Margin) -> list[int]:
    """The `count` most probable ids; of equally probable ids, the lower one first."""
    order = sorted(range(len(logprobs)), key=lambda token: (-logprobs[token], token))
    for better, worse in pairwise(order[: count + 1]):
        margin.note(logprobs[better] - logprobs[worse])
    return order[:count]


def most_probable(nodes: Sequence[Path], logp: Mapping[Path, float], count: int, margin: Margin) -> list[Path]:
    """The `count` most probable of `nodes`, in the breadth-first order that `nodes` have."""
    order = sorted(range(len(nodes)), key=lambda index: (-logp[nodes[index]], index))
    if len(order) > count:
        kept, dropped = nodes[order[count - 1]], nodes[order[count]]
        if dropped[: len(kept)] != kept:  # a node is never more probable than its ancestor, so this is no comparison
            margin.note(logp[kept] - logp[dropped])
    return [nodes[index] for index in sorted(order[:count])]


def grow(
    oracle: Oracle, prefix: Path, root: Path, root_logp: float, rules: Rules, margin: Margin
) -> tuple[dict[Path, float], int]:
    """Log p of each node, in breadth-first order with the root first; and the depth of the grown tree."""
    logp = {root: root_logp}
    room = rules.n_max - len(root)

    def children(node: Path) -> Iterable[Path]:
        depth, position = len(node) - len(root), len(prefix) - 1 + len(node)
        if depth >= rules.deepest or position + 1 >= oracle.context or not rules.expands(node, logp[node]):
            return
        logprobs = oracle.draft_logprobs(prefix + node, len(node), rules.sharpness)
        for token in ranked(logprobs, rules.breadth(logprobs), margin):
            child = (*node, token)
            logp[child] = logp[node] + logprobs[token]
            yield child

    if rules.beam:
        grown, beam = [root], [root]
        while beam:
            found = [child for node in beam for child in children(node)]
            grown += found
            beam = most_probable(found, logp, rules.beam, margin)
        tree = [root, *most_probable(grown[1:], logp, room, margin)]
    elif rules.best:
        levels = [[root]]
        while levels[-1]:
            found = [child for node in levels[-1] for child in children(node)]
            levels.append(most_probable(found, logp, room, margin))
        grown = [node for level in levels for node in level]
        tree = [root, *most_probable(grown[1:], logp, room, margin)]
        assert all(node[:-1] in tree for node in tree[1:]), "a node without its parent"
    else:
        tree = [root]
        for node in tree:  # the list grows during the loop
            if len(tree) - 1 < room:
                tree += list(children(node))[: room - (len(tree) - 1)]
        grown = tree
    return {node: logp[node] for node in tree}, max(len(node) - len(root) for node in grown)


def favourite(scores: Sequence[float], margin: Margin) -> int:
    """The id with the highest score; of equal scores, the lower id."""
    best, second = sorted(range(len(scores)), key=lambda token: (-scores[token], token))[:2]
    margin.note(scores[best] - scores[second])
    return best


def walk(oracle: Oracle, prefix: Path, nodes: Iterable[Path], margin: Margin, path: Path = ()) -> Path:
    """The target's greedy tokens as far as the tree contains them, and one more."""
    token = favourite(oracle.target_scores(prefix + path), margin)
    longer = (*path, token)
    return walk(oracle, prefix, nodes, margin, longer) if longer in nodes else longer


def greedy(oracle: Oracle, prompt: Sequence[int], count: int) -> list[int]:
    """Plain greedy decoding, one new forward pass per token."""
    text = list(prompt)
    while len(text) - len(prompt) < count:
        text.append(favourite(oracle.target_scores(tuple(text)), Margin()))
        if text[-1] in oracle.eos:
            break
    return text[len(prompt) :]


class History:
    """Configuration whose D0 and tau_h are adjusted by the acceptance of past rounds."""

    def __init__(self, config: DynaTree) -> None:
        self.config = config
        self.shares: list[float] = []
        self.moved = False

    def turn(self, name: KnobName, value: float) -> None:
        self.config = self.config.turned(name, value) if self.config.has(name) else self.config

    def learn(self, share: float) -> None:
        config = self.config
        self.shares.append(share)
        if not config.history or len(self.shares) < config.window:
            return
        excess = sum(self.shares[-config.window :]) / config.window - config.target_acceptance
        d0 = min(max(config.d0 + config.eta_d * excess, 1.0), config.d_max - 1.0)
        tau_h = min(max(config.tau_h - config.eta_h * excess, config.tau_l + 0.01), 1.0)
        self.config = replace(config, d0=d0, tau_h=tau_h)
        self.moved = True

    def note(self, margin: Margin) -> None:
        """Notes the rounding of D0, which is a comparison too once D0 is a computed number."""
        if self.moved:
            margin.note(self.config.d0 + 0.5 - round(self.config.d0 + 0.5))

    @property
    def knobs(self) -> Knobs:
        return Knobs(self.config.tau_h, self.config.tau_l, self.config.d0)


def simulate(
    oracle: Oracle,
    prompt: Sequence[int],
    method: str,
    config: DynaTree | Linear | Fixed | Eagle2 | None,
    max_new_tokens: int,
    turns: Turns | None = None,
) -> list[Step]:
    text = tuple(prompt)
    history = History(config) if isinstance(config, DynaTree) else None
    steps: list[Step] = []
    while True:
        for name, value in (turns or {}).get(len(steps), ()):
            if history:
                history.turn(name, value)
            elif config and config.has(name):
                config = config.turned(name, value)
        position = len(text) - len(prompt)
        room = max_new_tokens - position
        step, share = one_round(oracle, text, method, history.config if history else config, history, room)
        committed = cut(step.committed, oracle.eos, room)
        accepted = step.accepted[: len(committed) - 1]
        steps.append(replace(step, position=position, committed=committed, accepted=accepted))
        text += tuple(committed)
        if len(text) - len(prompt) >= max_new_tokens or committed[-1] in oracle.eos:
            return steps
        if history:
            history.learn(share)


def one_round(
    oracle: Oracle,
    text: Path,
    method: str,
    config: DynaTree | Linear | Fixed | Eagle2 | None,
    history: History | None,
    room: int,
) -> tuple[Step, float]:
    """One round with its burst uncut, and its depth acceptance.

    The step's tree has only nodes at depths below `room`, so that one token still fits after each of them.
    """
    margin = Margin()
    if history:
        history.note(margin)
    root, root_logp, rules = plan(oracle, text, method, config, margin)
    nodes, levels = grow(oracle, text, root, root_logp, rules, margin)
    burst = walk(oracle, text, nodes, margin)
    height = max(len(node) for node in nodes)
    order = [node for node in nodes if node == root or len(node) < room]
    whole = [burst[: length + 1] for length in range(len(burst) - 1)]
    path = [node for node in whole if len(node) < room]
    step = Step(
        position=0,
        tokens=[node[-1] if node else text[-1] for node in order],
        parents=[-1, *(order.index(node[:-1]) for node in order[1:])],
        logprobs=[nodes[root], *(nodes[node] - nodes[node[:-1]] for node in order[1:])],
        accepted=[order.index(node) for node in path],
        committed=list(burst),
        knobs=history.knobs if history else None,
        levels=levels,
        margin=margin.least,
    )
    return step, len(whole) / height if height else 0.0


def plan(
    oracle: Oracle, text: Path, method: str, config: DynaTree | Linear | Fixed | Eagle2 | None, margin: Margin
) -> tuple[Path, float, Rules]:
    """Root of a method's tree, log p of the root, and the growth rules."""
    match method, config:
        case "dynatree", DynaTree():
            return (), 0.0, dynatree_rules(config, margin)
        case "alg1", DynaTree():
            logprobs = oracle.draft_logprobs(text, sharpness=config.sharpness)
            (token,) = ranked(logprobs, 1, margin)
            return (token,), logprobs[token], dynatree_rules(config, margin, root_depth=1, bfs=True)
        case "fixed", Fixed():
            return (), 0.0, fixed_rules(config, margin)
        case "linear", Linear():
            return (), 0.0, linear_rules(config, margin)
        case "eagle2", Eagle2():
            return (), 0.0, eagle2_rules(config)
        case "ar", None:
            return (), 0.0, none_rules()
    raise ValueError(f"{method} with {config}")


def cut(burst: Sequence[int], eos: frozenset[int], room: int) -> list[int]:
    """The burst up to and including its first end-of-text token, at most `room` tokens."""
    ends = [index for index, token in enumerate(burst) if token in eos]
    length = ends[0] + 1 if ends else len(burst)
    return list(burst[: min(length, room)])
