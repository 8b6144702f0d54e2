"""A selector's features at a root, the network that scores actions there, the network's training objective (the paper,
appendix E), a fused form of the network for one root at a time, and the network's file. No feature depends on a token
of the chosen tree, so every verifier stays lossless. A file is written whole or not at all; a file for another pair is
refused.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn import functional

from decoder.draft.delayed_shape import ACTIONS
from decoder.errors import ConfigError, first_line, shortened
from decoder.models.pair import Pair
from decoder.sampling.settings import Sampling
from decoder.system.whole_files import write_whole

SCALARS = (
    "entropy of the target before the root",
    "entropy of the draft before the root",
    "entropy of the draft at the root",
    "KL divergence of the draft from the target before the root",
    "KL divergence of the target from the draft before the root",
    "L1 distance before the root",
    "logarithm of the text's length",
    "temperature",
    "top-p",
    "logarithm of the seconds of a draft pass",
    "logarithm of the seconds of a target pass",
)
TIMES = slice(len(SCALARS) - 2, len(SCALARS))
"""Scalars that depend on the machine, not on the text."""
LOOKED_BACK = 2
"""Number of the text's last tokens that the draft reads again before a shape is chosen."""
LEAST = 1e-10
"""Least argument of a logarithm, since top-p sets probabilities to 0."""


@dataclass(frozen=True)
class Root:
    """Distributions of a text's last token and of the next token, with temperature and truncation applied."""

    target_before: Float[Tensor, "V"]
    """The target's distribution of the last token."""
    draft_before: Float[Tensor, "V"]
    """The draft's distribution of the last token."""
    draft_at: Float[Tensor, "V"]
    """The draft's distribution of the next token."""
    hidden: tuple[Float[Tensor, "X"], ...]
    """Hidden rows of the three distributions, in this order; empty if the models do not expose hidden rows."""
    length: int
    """Length of the text, in tokens."""
    sampling: Sampling


def scalars(root: Root, draft_s: float, target_s: float) -> Float[Tensor, "F"]:
    """Values of `SCALARS` in float32 on the host, with entropies and divergences in nats."""
    rows = torch.stack([root.target_before, root.draft_before, root.draft_at]).float()
    logs = rows.clamp_min(LEAST).log()
    # For speed, few operators are called on rows of vocabulary size, and the results are copied to the host once.
    entropies = -(rows * logs).sum(-1)
    difference = rows[0] - rows[1]
    divergences = rows[:2] @ (logs[0] - logs[1])
    sums = torch.cat([entropies, divergences, difference.abs().sum()[None]])
    *entropy_values, forward, backward, distance = sums.tolist()
    by_text = [*entropy_values, forward, -backward, distance, math.log(root.length)]
    by_settings = [root.sampling.temperature, root.sampling.top_p]
    return torch.tensor([*by_text, *by_settings, *(math.log(max(seconds, LEAST)) for seconds in (draft_s, target_s))])


PROJECTED, WIDE, NARROW = 128, 512, 32
FARTHEST = 4.0
"""Largest absolute value of a standardised scalar, so that an unseen machine or setting does not dominate."""
EPSILON = 1e-6
BEGINNING = 0.1
"""Factor on the initial weights of the last layer."""


class Policy(nn.Module):
    mean: Tensor
    deviation: Tensor

    def __init__(self, hidden_widths: Sequence[int], dropout: float = 0.0) -> None:
        """Without `hidden_widths`, the network reads only scalars."""
        super().__init__()
        self.hidden_widths = tuple(hidden_widths)
        self.register_buffer("mean", torch.zeros(len(SCALARS)))
        self.register_buffer("deviation", torch.ones(len(SCALARS)))
        self.projections = nn.ModuleList(
            nn.Sequential(nn.Linear(width, PROJECTED), nn.LayerNorm(PROJECTED)) for width in self.hidden_widths
        )
        self.layers: Any = nn.Sequential(
            nn.Linear(len(self.hidden_widths) * PROJECTED + len(SCALARS), WIDE),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(WIDE, NARROW),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(NARROW, len(ACTIONS)),
        )

    def scale_by(self, scalars: Float[Tensor, "R F"]) -> None:
        """Sets the mean and deviation for standardising inputs to those of `scalars`; constant scalars become 0."""
        deviation, mean = torch.std_mean(scalars, 0, correction=0)
        self.mean.copy_(mean)
        self.deviation.copy_(torch.where(deviation > EPSILON, deviation, math.inf))

    def begin_with(self, scores: Float[Tensor, "A"]) -> None:
        """Sets the last layer so that the untrained network gives about these scores at every root."""
        last = self.layers[-1]
        with torch.no_grad():
            last.weight.mul_(BEGINNING)
            last.bias.copy_(scores)

    def forward(self, hidden: Sequence[Float[Tensor, "R X"]], scalars: Float[Tensor, "R F"]) -> Float[Tensor, "R A"]:
        """Logits of the actions at R roots."""
        scaled = ((scalars - self.mean) / self.deviation).clamp(-FARTHEST, FARTHEST)
        rows = [
            project(functional.rms_norm(row, row.shape[-1:], eps=EPSILON))
            for project, row in zip(self.projections, hidden, strict=True)
        ]
        scores: Tensor = self.layers(torch.cat([*rows, scaled], -1))
        return scores


def throughput(
    scores: Float[Tensor, "R A"], tokens: Float[Tensor, "R A"], seconds: Float[Tensor, "R A"]
) -> Float[Tensor, "R"]:
    """Expected tokens / expected seconds of a round, if the policy samples its action (the paper, equation 4)."""
    probabilities = scores.softmax(-1)
    return (probabilities * tokens).sum(-1) / (probabilities * seconds).sum(-1)


def loss(
    rates: Float[Tensor, "R"], base_rates: Float[Tensor, "R"], regret_weight: float, worst_share: float
) -> Float[Tensor, ""]:
    """Slowness against a baseline, plus regret at the worst roots (the paper, equation 12): `rates` are the policy's
    tokens per second, `base_rates` those of the best fixed action for the root's sampling setting, `regret_weight`
    is lambda, and `worst_share` alpha, the share of the roots over which the regret is averaged.
    """
    ratios = rates / base_rates
    regrets = (1 - ratios).clamp_min(0).square()
    worst = regrets.topk(math.ceil(worst_share * len(regrets))).values
    return -ratios.log().mean() + regret_weight * worst.mean()


class OneRoot:
    def __init__(self, policy: Policy) -> None:
        self.hidden_widths = policy.hidden_widths
        first, middle, last = (policy.layers[place] for place in (0, 3, 6))
        self._mean, self._over = policy.mean, 1 / policy.deviation
        projections: list[Any] = list(policy.projections)
        self._projections = [(linear.weight.data, linear.bias.data) for linear, _ in projections]
        wide, bias, self._norm = first.weight.data.clone(), first.bias.data.clone(), (PROJECTED,)
        for number, (_, norm) in enumerate(projections):
            block = wide[:, number * PROJECTED : (number + 1) * PROJECTED]
            bias += block @ norm.bias.data
            block *= norm.weight.data
        self._wide = wide, bias
        self._later_layers = [(layer.weight.data, layer.bias.data) for layer in (middle, last)]

    @torch.inference_mode()
    def __call__(self, hidden: Sequence[Float[Tensor, "X"]], scalars: Float[Tensor, "F"]) -> Float[Tensor, "A"]:
        """Logits of the actions at one root; see `Policy.forward`."""
        parts = []
        for row, (weight, bias) in zip(hidden, self._projections, strict=True):
            scale = (row.dot(row) / len(row) + EPSILON).rsqrt()
            parts.append(functional.layer_norm(torch.addmv(bias, weight, row * scale), self._norm))
        parts.append(((scalars - self._mean) * self._over).clamp_(-FARTHEST, FARTHEST))
        weight, bias = self._wide
        scores = torch.addmv(bias, weight, torch.cat(parts))
        for weight, bias in self._later_layers:
            scores = torch.addmv(bias, weight, functional.gelu(scores))
        return scores


FORMAT = "dynatui selector 1"
MAKE_ONE = "make one with dynatui selector collect and dynatui selector train"


class Fingerprint(msgspec.Struct, frozen=True):
    """Properties of a pair on which a selector depends."""

    target: str
    draft: str
    vocabulary: int
    hidden: tuple[int, ...]
    """Widths of the hidden rows; empty if the pair exposes no hidden rows."""


class SelectorInfo(msgspec.Struct, frozen=True):
    pair: Fingerprint
    verifier: str
    temperatures: tuple[float, ...]
    top_ps: tuple[float, ...]
    roots: int
    """Number of roots in training."""
    gain: float
    """Tokens per second on validation prompts, divided by those of the best fixed shape for each sampling setting."""
    actions: int = len(ACTIONS)
    scalars: int = len(SCALARS)


def fingerprint(pair: Pair) -> Fingerprint:
    """Properties of a pair; includes the widths of hidden rows only if the pair is from `Pair.observed`."""
    widths = pair.target.hidden_width, pair.draft_model.hidden_width
    hidden = (widths[0], widths[1], widths[1]) if all(widths) else ()
    return Fingerprint(pair.target_name, pair.draft_name, pair.vocabulary, hidden)


def write_selector(path: Path, policy: Policy, trained: SelectorInfo) -> None:
    """Writes matrices in half precision. Raises ConfigError if the file cannot be written."""
    weights = {
        name: value.half().contiguous() if value.ndim > 1 else value.contiguous()
        for name, value in policy.state_dict().items()
    }
    metadata = {"format": FORMAT, "trained": msgspec.json.encode(trained).decode()}
    write_whole(path, save(weights, metadata))


def read_selector(path: Path) -> tuple[Policy, SelectorInfo]:
    """Raises ConfigError if the file does not exist, is damaged, or has another format version."""
    trained = read_info(path)
    try:
        weights = load_file(path)
        policy = Policy(trained.pair.hidden)
        policy.load_state_dict({name: value.float() for name, value in weights.items()})
    except (SafetensorError, OSError, RuntimeError) as error:
        raise ConfigError(f"{shortened(path)} is a damaged selector: {first_line(error)}; {MAKE_ONE}") from None
    return policy.eval().requires_grad_(requires_grad=False), trained


def read_info(path: Path) -> SelectorInfo:
    """Raises ConfigError as `read_selector` does."""
    if not path.is_file():
        raise ConfigError(f"there is no selector {shortened(path)}; {MAKE_ONE}")
    try:
        file: Any
        with safe_open(path, framework="pt") as file:
            metadata: Mapping[str, str] = file.metadata() or {}
        if metadata.get("format") == FORMAT:
            return msgspec.json.decode(metadata["trained"], type=SelectorInfo)
        reason = "it is a file of another kind or version"
    except (SafetensorError, OSError, ValueError, KeyError, msgspec.DecodeError) as error:
        reason = first_line(error)
    raise ConfigError(f"{shortened(path)} is not a selector that can be read: {reason}; {MAKE_ONE}")


def fits(trained_for: Fingerprint, pair: Fingerprint) -> bool:
    """Whether a selector fits a pair; a selector that reads no hidden rows also fits a pair that exposes them."""
    return trained_for in (pair, msgspec.structs.replace(pair, hidden=()))


def require_fits(path: Path, trained: SelectorInfo, pair: Pair) -> None:
    """Raises ConfigError for a selector of another pair."""
    actual, expected = fingerprint(pair), trained.pair
    if fits(expected, actual):
        return
    raise ConfigError(
        f"the selector {shortened(path.name)} was trained for {_described(expected)}, but this pair is "
        f"{_described(actual)}; {MAKE_ONE}, or choose --drafting delayed"
    )


def _described(pair: Fingerprint) -> str:
    widths = " and ".join(map(str, pair.hidden[:2]))
    states = f"hidden rows of widths {widths}" if widths else "no hidden rows"
    return f"{pair.target} with {pair.draft} ({pair.vocabulary} tokens, {states})"
