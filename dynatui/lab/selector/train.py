"""Trains a selector on labelled roots, and compares its speed with that of the best fixed shape: as predicted at the
roots of test prompts, and as measured by decoding. Training resumes from a checkpoint beside the output file.
"""

import hashlib
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoder.draft.delayed_shape import ACTIONS, DelayedTree
from decoder.engine import Engine
from decoder.errors import ConfigError, require, shortened
from decoder.events import Figures, Summary
from decoder.methods.delayed import Delayed
from decoder.prompt import AnyPrompt
from decoder.run.config import RunConfig
from decoder.run.race import decode
from decoder.sampling.settings import SAMPLING, Sampling
from decoder.selector import latency
from decoder.selector.policy import TIMES, Fingerprint, Policy, SelectorInfo, loss, throughput, write_selector
from decoder.system.whole_files import write_whole
from decoder.verify.names import Drafting
from dynatui.lab.bench import Progress
from dynatui.lab.selector.collect import TEST, VALIDATION, Manifest, Roots, round_seconds

WORST_SHARE = 0.1
"""Alpha in `decoder.selector.policy.loss`, which averages the largest regrets over this share of the roots."""
PACE = 0.7
"""In training, pass times of draft and target get random factors between exp(-PACE) and exp(PACE)."""
SURENESS = 20.0
"""Scale of the initial scores. With these scores, an untrained policy prefers actions that are fast over all roots."""
LEAST_RATE = 1e-3
IMPOSSIBLE = -1e4
ONE_ROW = [latency.DRAFT.start, latency.VERIFY.start]
"""Indices of the passes of draft and target over one row."""
LEAST_ROOTS = 8
"""Minimum number of roots in the training part, and minimum number of roots in the validation part."""


class Recipe(msgspec.Struct, frozen=True):
    verifier: str
    epochs: int = 40
    rate: float = 1e-3
    dropout: float = 0.2
    weight_decay: float = 0.05
    batch: int = 64
    regret_weight: float = 1.0
    entropy_weight: float = 0.03
    """Initial weight of the entropy; the weight falls to 0. A policy that is certain too early would stop learning."""
    hidden: bool = True
    seed: int = 0


def train(roots: Roots, manifest: Manifest, recipe: Recipe, file: Path) -> Iterator[Progress]:
    """Trains a selector, and writes the policy of the epoch with the largest gain; yields after each epoch."""
    _require_labels(roots, recipe.verifier, "--verifier")
    training, validation = roots.training(), roots.part(VALIDATION)
    require(
        min(len(training), len(validation)) >= LEAST_ROOTS,
        f"{len(roots)} roots of {manifest.prompts} prompts are too few for training and validation; collect roots of "
        "more prompts",
    )
    checkpoint = file.with_name(f"{file.name}.training")
    trainer = _Trainer(training, validation, manifest, recipe)
    trainer.resume(checkpoint)
    while trainer.epochs < recipe.epochs:
        epoch = trainer.epoch()
        write_whole(checkpoint, trainer.state())
        yield epoch
    write_selector(file, trainer.best_policy(), trainer.trained())
    checkpoint.unlink(missing_ok=True)


def _require_labels(roots: Roots, verifier: str, remedy: str) -> None:
    labelled = ", ".join(roots.verifiers)
    known = verifier in roots.verifiers
    require(known, f"no roots were labelled for {verifier}, only for {labelled}; give another {remedy}")


def static_rates(roots: Roots, verifier: str, part_seconds: Float[Tensor, "S"]) -> Float[Tensor, "A"]:
    """Tokens of each fixed shape over all roots, divided by the seconds of a round."""
    return roots.tokens(verifier).nan_to_num(0.0).sum(0) / round_seconds(part_seconds)


def bases(roots: Roots, verifier: str, part_seconds: Float[Tensor, "S"]) -> dict[int, int]:
    """Best fixed action for each sampling setting."""
    rates = {number: static_rates(each, verifier, part_seconds) for number, each in roots.by_setting().items()}
    return {number: int(each.argmax()) for number, each in rates.items()}


def static(roots: Roots, base: dict[int, int]) -> Int[Tensor, "R"]:
    """Best fixed action of each root's sampling setting."""
    return torch.tensor([base.get(setting, next(iter(base.values()))) for setting in roots.settings])


def chosen(policy: Policy, roots: Roots, verifier: str, part_seconds: Float[Tensor, "S"]) -> Int[Tensor, "R"]:
    """Action that a policy chooses at each root."""
    scalars = roots.scalars.clone()
    scalars[:, TIMES] = part_seconds[ONE_ROW].log().to(scalars.dtype)
    policy.eval()
    with torch.no_grad():
        scores: Tensor = policy(roots.hidden if policy.hidden_widths else (), scalars)
    return scores.masked_fill(roots.tokens(verifier).isnan(), -torch.inf).argmax(-1)


@dataclass(frozen=True)
class Speed:
    """Predicted speed at some roots."""

    tokens_per_second: float
    tokens_per_round: float

    @staticmethod
    def of(roots: Roots, verifier: str, part_seconds: Float[Tensor, "S"], actions: Int[Tensor, "R"]) -> "Speed":
        tokens = roots.tokens(verifier).nan_to_num(0.0).gather(1, actions[:, None])
        seconds = round_seconds(part_seconds)[actions]
        return Speed(float(tokens.sum() / seconds.sum()), float(tokens.mean()))


def gain(policy: Policy, roots: Roots, verifier: str, base: dict[int, int], part_seconds: Float[Tensor, "S"]) -> float:
    """A policy's predicted tokens per second, divided by the tokens per second of the best fixed shapes."""
    selected, fixed = (
        Speed.of(roots, verifier, part_seconds, actions)
        for actions in (chosen(policy, roots, verifier, part_seconds), static(roots, base))
    )
    return selected.tokens_per_second / fixed.tokens_per_second


class _Trainer:
    def __init__(self, training: Roots, validation: Roots, manifest: Manifest, recipe: Recipe) -> None:
        self.epochs = 0
        self._training, self._validation = training, validation
        self._manifest, self._recipe = manifest, recipe
        self._part_seconds = training.fastest(recipe.verifier)
        self._base = bases(training, recipe.verifier, self._part_seconds)
        widths = [rows.shape[1] for rows in training.hidden] if recipe.hidden else []
        self._generator = torch.Generator().manual_seed(recipe.seed)
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(recipe.seed)
            self._policy = Policy(widths, recipe.dropout)
        paced = [self._paced(torch.arange(len(training)))[0] for _ in range(LEAST_ROOTS)]
        self._policy.scale_by(torch.cat(paced))
        rates = static_rates(training, recipe.verifier, self._part_seconds)
        self._policy.begin_with(SURENESS * (rates / rates.max()).clamp_min(LEAST_RATE).float().log())
        self._stepper = torch.optim.AdamW(self._policy.parameters(), recipe.rate, weight_decay=recipe.weight_decay)
        steps = recipe.epochs * -(-len(training) // recipe.batch)
        self._slower = torch.optim.lr_scheduler.OneCycleLR(self._stepper, recipe.rate, total_steps=steps + 1)
        self._best_gain, self._best = -torch.inf, self._copied()

    def epoch(self) -> Progress:
        order = torch.randperm(len(self._training), generator=self._generator)
        losses = [self._step(rows) * len(rows) for rows in order.split(self._recipe.batch)]
        self.epochs += 1
        latest = gain(self._policy, self._validation, self._recipe.verifier, self._base, self._part_seconds)
        if latest > self._best_gain:
            self._best_gain, self._best = latest, self._copied()
        mean = sum(losses) / len(self._training)
        line = f"epoch {self.epochs} of {self._recipe.epochs}, loss {mean:.3f}, best gain {self._best_gain:.3f}"
        return Progress(line, self.epochs / self._recipe.epochs)

    def best_policy(self) -> Policy:
        self._policy.load_state_dict(self._best)
        return self._policy.eval()

    def trained(self) -> SelectorInfo:
        plan, pair = self._manifest.plan, self._manifest.pair
        return SelectorInfo(
            pair=Fingerprint(pair.target, pair.draft, pair.vocabulary, self._policy.hidden_widths),
            verifier=self._recipe.verifier,
            temperatures=plan.temperatures,
            top_ps=plan.top_ps,
            roots=len(self._training),
            gain=self._best_gain,
        )

    def state(self) -> bytes:
        content, best = io.BytesIO(), {"best": self._best, "best_gain": self._best_gain}
        parts = {name: part.state_dict() for name, part in self._parts().items()}
        generator = self._generator.get_state()
        torch.save({"of": self._digest(), "epochs": self.epochs, **parts, "generator": generator, **best}, content)
        return content.getvalue()

    def resume(self, checkpoint: Path) -> None:
        if not checkpoint.exists():
            return
        try:
            saved: dict[str, Any] = torch.load(checkpoint, weights_only=True)
        except (OSError, RuntimeError, EOFError) as error:
            raise ConfigError(f"{shortened(checkpoint)} is damaged: {type(error).__name__}; remove this file") from None
        if saved["of"] != self._digest():
            return
        for name, part in self._parts().items():
            part.load_state_dict(saved[name])
        self._generator.set_state(saved["generator"])
        self.epochs, self._best, self._best_gain = saved["epochs"], saved["best"], saved["best_gain"]

    def _parts(self) -> dict[str, Any]:
        return {"policy": self._policy, "stepper": self._stepper, "slower": self._slower}

    def _step(self, rows: Tensor) -> float:
        # Dropout uses torch's global generator, which a resumed training does not restore. So the global generator gets
        # its seed from `_generator`, which is restored.
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(int(torch.randint(1 << 62, (), generator=self._generator)))
            roots = self._training.select(rows)
            scalars, part_seconds = self._paced(rows)
            tokens, seconds = roots.tokens(self._recipe.verifier), round_seconds(part_seconds)
            self._policy.train()
            scores: Tensor = self._policy(roots.hidden if self._policy.hidden_widths else (), scalars)
        scores = scores.masked_fill(tokens.isnan(), IMPOSSIBLE)
        tokens = tokens.nan_to_num(0.0)
        base = static(roots, self._base)[:, None]
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
        """Scalars and times of the parts of a round, with random factors on the pass times of draft and target."""
        factors = (torch.rand((len(rows), 2), generator=self._generator) * 2 - 1).mul_(PACE).exp_()
        part_seconds = self._part_seconds.repeat(len(rows), 1)
        part_seconds[:, latency.READ] *= factors[:, 0]
        part_seconds[:, latency.DRAFT] *= factors[:, :1]
        part_seconds[:, latency.VERIFY] *= factors[:, 1:]
        scalars = self._training.scalars[rows]
        scalars[:, TIMES] = part_seconds[:, ONE_ROW].log()
        return scalars, part_seconds

    def _copied(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self._policy.state_dict().items()}

    def _digest(self) -> str:
        job = msgspec.json.encode((self._recipe, self._manifest.digest, len(self._training), len(self._validation)))
        return hashlib.sha256(job + self._training.scalars.numpy().tobytes()).hexdigest()


COMMON = 3
"""Number of shapes in `Prediction.common`."""


@dataclass(frozen=True)
class Prediction:
    """Predicted speeds at the test roots of one sampling setting."""

    sampling: Sampling
    roots: int
    static: DelayedTree
    """Best fixed shape for the training roots of this sampling setting."""
    fixed: Speed
    """Speed with this shape."""
    selected: Speed
    common: tuple[tuple[DelayedTree, float], ...]
    """Most frequently chosen shapes, each with its share of the roots."""

    @property
    def gain(self) -> float:
        return self.selected.tokens_per_second / self.fixed.tokens_per_second


def predict(policy: Policy, verifier: str, roots: Roots, manifest: Manifest) -> list[Prediction]:
    """For each sampling setting, the predicted speeds at the roots of the test prompts."""
    _require_labels(roots, verifier, "--data")
    test, part_seconds = roots.part(TEST), roots.fastest(verifier)
    require(len(test) > 0, f"{manifest.prompts} prompts are too few for a test part; collect roots of more prompts")
    base, parts = bases(roots.training(), verifier, part_seconds), []
    for setting, at_setting in test.by_setting().items():
        if setting not in base:
            continue
        actions = chosen(policy, at_setting, verifier, part_seconds)
        fixed, selected = (
            Speed.of(at_setting, verifier, part_seconds, each) for each in (static(at_setting, base), actions)
        )
        common = Counter(actions.tolist()).most_common(COMMON)
        shares = tuple((ACTIONS[action], count / len(at_setting)) for action, count in common)
        sampling = manifest.plan.settings[setting]
        parts.append(Prediction(sampling, len(at_setting), ACTIONS[base[setting]], fixed, selected, shares))
    return parts


METHOD = "delayed"


@dataclass(frozen=True)
class Realised:
    """Figures of the texts decoded so far at one sampling setting, with the best static shape and with the selector."""

    predicted: Prediction
    static: list[Figures] = field(default_factory=list)
    selected: list[Figures] = field(default_factory=list)


def realised(
    engine: Engine,
    prompts: Sequence[AnyPrompt],
    parts: Sequence[Prediction],
    rules: Delayed,
    max_new_tokens: int,
    seed: int,
) -> Iterator[Realised]:
    """Decodes each prompt at each sampling setting, with the static shape and with the selector; yields the figures of
    the setting after each prompt. The first prompt has the seed `seed`, the second `seed` + 1, and so on.
    """
    for part in parts:
        shape, sampling, found = part.static, part.sampling, Realised(part)
        static = replace(rules, drafting=Drafting.DELAYED, k=shape.k, l1=shape.l1, l2=shape.l2)
        plain = RunConfig((METHOD,), max_new_tokens).with_rules(SAMPLING, sampling)
        runs = [plain.with_rules(METHOD, each) for each in (static, replace(static, drafting=Drafting.SELECTOR))]
        for run in runs:
            _figures(engine, prompts[0], run, seed)  # warm-up
        for number, prompt in enumerate(prompts, seed):
            for run, texts in zip(runs, (found.static, found.selected), strict=True):
                texts.append(_figures(engine, prompt, run, number))
            yield found


def _figures(engine: Engine, prompt: AnyPrompt, run: RunConfig, seed: int) -> Figures:
    config = replace(run, seed=seed)
    return next(event.methods[METHOD] for event in decode(engine, prompt, config) if isinstance(event, Summary))
