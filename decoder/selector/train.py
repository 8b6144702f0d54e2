"""A selector from labelled roots: a few hundred small steps, by the objective of the paper's equation 12.

Goes on where it was stopped, from a checkpoint beside the file that it writes. Machines differ in what a draft pass
takes beside a target pass, and one machine measures but one of them: so each step scales both at random, in the times
that are trained on as in the features that tell them.
"""

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.errors import ConfigError, require, shortened
from decoder.selector import latency
from decoder.selector.dataset import VALIDATION, Manifest, Roots, round_seconds
from decoder.selector.features import TIMES
from decoder.selector.policy import Policy, best_static, loss, throughput
from decoder.selector.stored import Fingerprint, Trained, write
from decoder.whole_files import write_whole

WORST_SHARE = 0.1
"""Alpha of the objective."""
PACE = 0.7
"""Draft and target are made faster or slower by up to a factor of e to this."""
SURENESS = 20.0
"""How strongly a policy prefers, at first, what is best for all roots."""
LEAST_RATE = 1e-3
IMPOSSIBLE = -1e4
"""The score of shapes that a verifier does not take."""
LEAST_ROOTS = 8
"""For each of the parts: training, validation, and what is judged."""


class Recipe(msgspec.Struct, frozen=True):
    """How a selector is trained."""

    verifier: str
    epochs: int = 40
    rate: float = 1e-3
    dropout: float = 0.2
    weight_decay: float = 0.05
    batch: int = 64
    regret_weight: float = 1.0
    """Lambda of the objective."""
    entropy_weight: float = 0.03
    """Of the policy's entropy, falling to 0: one that is sure too soon of what is best for all roots learns no more."""
    hidden: bool = True
    """Whether it goes by hidden rows, where they were collected."""
    seed: int = 0


@dataclass(frozen=True)
class Epoch:
    """How far training has come."""

    number: int
    """From 1."""
    total: int
    loss: float
    """Mean over the training roots."""
    gain: float
    """Tokens a second of what it chooses for validation roots, over the best shape for each of their settings."""
    best: float
    """The largest so far; the selector that had it is kept."""


def train(roots: Roots, manifest: Manifest, recipe: Recipe, file: Path) -> Iterator[Epoch]:
    """Trains a selector and keeps it; yields after each epoch.

    Raises:
        ConfigError: The roots are too few, were not labelled for this verifier, or the file cannot be written.
    """
    labelled = ", ".join(roots.tokens)
    require(recipe.verifier in roots.tokens, f"no roots were labelled for {recipe.verifier}, only for {labelled}")
    training, validation = roots.training(), roots.part(VALIDATION)
    for part in (training, validation):
        require(
            len(part) >= LEAST_ROOTS,
            f"{len(roots)} roots of {manifest.prompts} prompts are too few to train on and to judge by; collect more "
            "prompts",
        )
    checkpoint = file.with_name(f"{file.name}.training")
    trainer = _Trainer(training, validation, manifest, recipe)
    trainer.resume(checkpoint)
    while trainer.epochs < recipe.epochs:
        told = trainer.epoch()
        write_whole(checkpoint, trainer.state())
        yield told
    write(file, trainer.best_policy(), trainer.trained())
    checkpoint.unlink(missing_ok=True)


def bases(roots: Roots, verifier: str, seconds: Float[Tensor, "A"]) -> dict[int, int]:
    """The best shape of all roots of each sampling setting, by number."""
    tokens = roots.tokens[verifier].nan_to_num(0.0)
    found = {}
    for setting in roots.setting.unique().tolist():
        own = tokens[roots.setting == setting]
        found[setting] = int(best_static(own, seconds.expand_as(own)))
    return found


def gain(policy: Policy, roots: Roots, verifier: str, base: dict[int, int], found: Float[Tensor, "S"]) -> float:
    """Predicted tokens a second of what a policy chooses, over those of the best static shapes."""
    tokens, seconds = roots.tokens[verifier].nan_to_num(0.0), round_seconds(found[None]).expand(len(roots), -1)
    actions = chosen(policy, roots, verifier, found)
    static = torch.tensor([base.get(setting, next(iter(base.values()))) for setting in roots.setting.tolist()])
    return rate(tokens, seconds, actions) / rate(tokens, seconds, static)


def chosen(policy: Policy, roots: Roots, verifier: str, found: Float[Tensor, "S"]) -> Tensor:
    """The action of each root, shape (R,), by passes that take so long."""
    scalars = roots.scalars.clone()
    scalars[:, TIMES] = found[[latency.DRAFT.start, latency.VERIFY.start]].log().to(scalars.dtype)
    policy.eval()
    with torch.no_grad():
        scores: Tensor = policy(roots.hidden if policy.hidden_widths else (), scalars)
    return scores.masked_fill(roots.tokens[verifier].isnan(), -torch.inf).argmax(-1)


def rate(tokens: Float[Tensor, "R A"], seconds: Float[Tensor, "R A"], actions: Tensor) -> float:
    """Tokens a second of rounds at all these roots."""
    picked = tokens.gather(1, actions[:, None]).sum() / seconds.gather(1, actions[:, None]).sum()
    return float(picked)


class _Trainer:
    """A policy in training, and the best so far."""

    def __init__(self, training: Roots, validation: Roots, manifest: Manifest, recipe: Recipe) -> None:
        self.epochs = 0
        self._training, self._validation = training, validation
        self._manifest, self._recipe = manifest, recipe
        self._found = training.fastest(recipe.verifier)
        self._base = bases(training, recipe.verifier, round_seconds(self._found[None])[0])
        widths = [rows.shape[1] for rows in training.hidden] if recipe.hidden else []
        self._generator = torch.Generator().manual_seed(recipe.seed)
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(recipe.seed)
            self._policy = Policy(widths, recipe.dropout)
        paced = [self._paced(torch.arange(len(training)))[0] for _ in range(LEAST_ROOTS)]
        self._policy.scale_by(torch.cat(paced))
        self._policy.begin_with(SURENESS * self._static_rates().log())
        self._stepper = torch.optim.AdamW(self._policy.parameters(), recipe.rate, weight_decay=recipe.weight_decay)
        steps = recipe.epochs * -(-len(training) // recipe.batch)
        self._slower = torch.optim.lr_scheduler.OneCycleLR(self._stepper, recipe.rate, total_steps=steps + 1)
        self._best_gain, self._best = -torch.inf, self._copied()

    def epoch(self) -> Epoch:
        """Once through all roots, in a new order."""
        order = torch.randperm(len(self._training), generator=self._generator)
        losses = [self._step(rows) * len(rows) for rows in order.split(self._recipe.batch)]
        self.epochs += 1
        found = gain(self._policy, self._validation, self._recipe.verifier, self._base, self._found)
        if found > self._best_gain:
            self._best_gain, self._best = found, self._copied()
        mean = sum(losses) / len(self._training)
        return Epoch(self.epochs, self._recipe.epochs, mean, found, self._best_gain)

    def best_policy(self) -> Policy:
        """The one that chose best for validation roots."""
        self._policy.load_state_dict(self._best)
        return self._policy.eval()

    def trained(self) -> Trained:
        """What is kept beside it."""
        plan, pair = self._manifest.plan, self._manifest.pair
        return Trained(
            pair=Fingerprint(pair.target, pair.draft, pair.vocabulary, self._policy.hidden_widths),
            verifier=self._recipe.verifier,
            temperatures=plan.temperatures,
            top_ps=plan.top_ps,
            roots=len(self._training),
            gain=self._best_gain,
        )

    def state(self) -> bytes:
        """All that going on needs."""
        content = io.BytesIO()
        kept = {
            "of": self._digest(),
            "epochs": self.epochs,
            "policy": self._policy.state_dict(),
            "stepper": self._stepper.state_dict(),
            "slower": self._slower.state_dict(),
            "generator": self._generator.get_state(),
            "best": self._best,
            "best_gain": self._best_gain,
        }
        torch.save(kept, content)
        return content.getvalue()

    def resume(self, checkpoint: Path) -> None:
        """Goes on from a checkpoint of the same roots and recipe, if there is one."""
        if not checkpoint.exists():
            return
        try:
            kept: dict[str, Any] = torch.load(checkpoint, weights_only=True)
        except (OSError, RuntimeError, EOFError) as error:
            raise ConfigError(f"{shortened(checkpoint)} is damaged: {type(error).__name__}; remove it") from None
        if kept["of"] != self._digest():
            return
        self._policy.load_state_dict(kept["policy"])
        self._stepper.load_state_dict(kept["stepper"])
        self._slower.load_state_dict(kept["slower"])
        self._generator.set_state(kept["generator"])
        self.epochs, self._best, self._best_gain = kept["epochs"], kept["best"], kept["best_gain"]

    def _step(self, rows: Tensor) -> float:
        # Dropout draws from torch's own generator, which a resumed training must find where it was.
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(int(torch.randint(1 << 62, (), generator=self._generator)))
            roots = self._training.of(rows)
            scalars, found = self._paced(rows)
            tokens, seconds = roots.tokens[self._recipe.verifier], round_seconds(found)
            self._policy.train()
            scores: Tensor = self._policy(roots.hidden if self._policy.hidden_widths else (), scalars)
        scores = scores.masked_fill(tokens.isnan(), IMPOSSIBLE)
        tokens = tokens.nan_to_num(0.0)
        base = torch.tensor([self._base[setting] for setting in roots.setting.tolist()])[:, None]
        base_rates = (tokens.gather(1, base) / seconds.gather(1, base))[:, 0]
        rates = throughput(scores, tokens, seconds)
        value = loss(rates, base_rates, self._recipe.regret_weight, WORST_SHARE)
        left = self._recipe.entropy_weight * (1 - self.epochs / self._recipe.epochs)
        objective = value - left * torch.distributions.Categorical(logits=scores).entropy().mean()
        self._stepper.zero_grad(set_to_none=True)
        objective.backward()
        torch.nn.utils.clip_grad_norm_(self._policy.parameters(), 1.0)
        self._stepper.step()
        self._slower.step()
        return value.item()

    def _paced(self, rows: Tensor) -> tuple[Float[Tensor, "R F"], Float[Tensor, "R S"]]:
        """Scalars and parts of rounds of some roots, as on a machine on which models run faster or slower."""
        factors = (torch.rand((len(rows), 2), generator=self._generator) * 2 - 1).mul_(PACE).exp_()
        found = self._found.repeat(len(rows), 1)
        found[:, latency.READ] *= factors[:, 0]
        found[:, latency.DRAFT] *= factors[:, :1]
        found[:, latency.VERIFY] *= factors[:, 1:]
        scalars = self._training.scalars[rows]
        scalars[:, TIMES] = found[:, [latency.DRAFT.start, latency.VERIFY.start]].log()
        return scalars, found

    def _static_rates(self) -> Float[Tensor, "A"]:
        """Tokens a second of each shape for all roots, over those of the best."""
        tokens = self._training.tokens[self._recipe.verifier].nan_to_num(0.0).sum(0)
        rates = tokens / round_seconds(self._found[None])[0]
        return (rates / rates.max()).clamp_min(LEAST_RATE).float()

    def _copied(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self._policy.state_dict().items()}

    def _digest(self) -> str:
        """Of what is trained on, and how."""
        told = msgspec.json.encode((self._recipe, self._manifest.digest, len(self._training), len(self._validation)))
        return hashlib.sha256(told + self._training.scalars.numpy().tobytes()).hexdigest()
