"""All cases of the long runs."""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from zlib import crc32

from decoder.methods.delayed import Delayed
from decoder.methods.dynatree import DynaTree
from decoder.methods.eagle2 import Eagle2
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from decoder.sampling.settings import Sampling
from decoder.tree_rules import Rules
from decoder.verify.names import VERIFIER_NAMES
from tests.decoder.laws import embedded
from tests.decoder.laws.block_efficiency import efficiency, recorded
from tests.decoder.laws.case import Case, Counts, Group, Verdict
from tests.decoder.laws.joint_law import ALPHA, compare
from tests.decoder.laws.mistakes import MISTAKES, Mistake
from tests.decoder.laws.toy import Setting, drawn, sampled, texts

TEXTS = 20_000
"""Number of texts of correct samplers that are compared with the law; a quarter reveals most mistakes."""
EFFICIENCY_TEXTS, BOOK_TEXTS, BOOK_TOKENS = 3_000, 20, 60
COUPLED = ("ar", "linear", "fixed", "dynatree", "auto", "alg1")
COUPLED_SEEDS, COUPLED_TOKENS = 20, 200


OF_LAWS = ("texts", "impossible", "TV", "bound of TV", "Pearson's p", "verdict")


def _held_against(setting: Setting, counts: Counts, *, fits: bool) -> Verdict:
    found = compare(counts, setting.law)
    verdict = "follows the law" if found.fits else "rejected"
    numbers = f"{found.distance:.4f}", f"{found.bound:.4f}", f"{found.chance:.2g}", verdict
    return Verdict(found.fits == fits, (str(found.texts), str(found.impossible), *numbers))


def _seeds(name: str, units: range) -> Iterator[int]:
    """Seeds of units, different for every case."""
    return ((crc32(name.encode()) << 20) + unit for unit in units)


def _law(name: str, setting: Setting) -> Case:
    def count(units: range) -> Counter[str]:
        return texts(setting, _seeds(name, units))

    return Case(name, str(setting), TEXTS, 500, count, partial(_held_against, setting, fits=True))


def _mistake(mistake: Mistake) -> Case:
    def count(units: range) -> Counter[str]:
        with mistake.change():
            return texts(mistake.setting, _seeds(mistake.name, units))

    judge = partial(_held_against, mistake.setting, fits=False)
    return Case(mistake.name, str(mistake.setting), mistake.texts, 500, count, judge)


T7, T1, T7_P9, T1_P9 = Sampling(0.7), Sampling(1.0), Sampling(0.7, 0, 0.9), Sampling(1.0, 0, 0.9)
CHAIN, PAIR = ("iid", (1, 0, 3)), ("iid", (2, 0, 2))
SPLIT, LATE, WIDE = ("delayed", (1, 1, 2)), ("delayed", (2, 1, 1)), ("delayed", (3, 1, 2))
DRAWN = {
    "traversal": ((CHAIN, T7_P9, "neox"), (PAIR, T1, "llama"), (LATE, T1_P9, "neox"), (WIDE, T7, "neox")),
    "block": ((CHAIN, T1, "neox"), (SPLIT, T7_P9, "llama")),
    "specinfer": ((PAIR, T1_P9, "llama"), (LATE, T7, "neox")),
    "khisti": ((WIDE, T1_P9, "neox"), (PAIR, T7_P9, "llama")),
    "spectr": ((LATE, T1_P9, "llama"), (WIDE, T1, "neox")),
    "naive": ((CHAIN, T7, "llama"), (WIDE, T1_P9, "neox")),
    "naive_tree": ((PAIR, T1, "neox"), (WIDE, T7_P9, "llama")),
    "nss": ((LATE, T7, "neox"), (WIDE, T1_P9, "llama")),
}
"""Trees, settings and families of each verifier's cases."""
SHALLOW: Mapping[str, Mapping[str, Rules]] = {
    "linear": {"linear": Linear(2)},
    "fixed": {"fixed": Fixed(2, 2, 0.05, 8)},
    "eagle2": {"eagle2": Eagle2(2, 3, 6)},
    "dynatree": {"dynatree": DynaTree(branching=(2, 2, 3), rho_stop=0.01, rho_deep=0.05, d0=2, d_max=3)},
    "alg1": {"dynatree": DynaTree(branching=(2, 2, 3), rho_stop=0.01, rho_deep=0.05, d0=2, d_max=3)},
}
"""Small deterministic trees: parameters by method."""
DETERMINISTIC = (
    ("linear", "nss", T1_P9, "neox"),
    ("dynatree", "nss", T1, "neox"),
    ("alg1", "nss", T7_P9, "llama"),
    ("dynatree", "coupled", T1_P9, "llama"),
    ("fixed", "coupled", T7, "neox"),
    ("eagle2", "nss", T1, "llama"),
    ("eagle2", "coupled", T7_P9, "neox"),
)


def deterministic(method: str, verifier: str, sampling: Sampling, family: str) -> Setting:
    """Setting with deterministic trees, which consist of the most probable tokens."""
    return Setting(family, sampled(method, sampling, verifier=verifier, **SHALLOW[method]))


def _sampled(sampling: Sampling, family: str) -> str:
    return f"T {sampling.temperature:g}, top-p {sampling.top_p:g}, {family}"


SETTINGS = {
    f"{verifier}, {drafting} {shape}, {_sampled(sampling, family)}": drawn(verifier, drafting, shape, sampling, family)
    for verifier, trees in DRAWN.items()
    for (drafting, shape), sampling, family in trees
} | {
    f"{verifier}, {method}, {_sampled(sampling, family)}": deterministic(method, verifier, sampling, family)
    for method, verifier, sampling, family in DETERMINISTIC
}
"""Settings of all cases of correct samplers, by name."""


def _efficient(counts: Counts) -> Verdict:
    found = efficiency(counts)
    right = found.chance > ALPHA
    numbers = f"{found.expected:.4f}", f"{found.realised:.4f}", f"{found.z:+.2f}"
    return Verdict(right, (str(found.rounds), *numbers, "within chance" if right else "differs"))


def _toy_efficiency(verifier: str) -> Case:
    name = f"{verifier}, tiny pair"
    setting = drawn(verifier, *(CHAIN if verifier == "block" else WIDE), T1_P9)

    def count(units: range) -> Counter[str]:
        with recorded(verifier) as sums:
            texts(setting, _seeds(name, units))
        return sums

    return Case(name, str(setting), EFFICIENCY_TEXTS, 500, count, _efficient)


def _book_efficiency(verifier: str) -> Case:
    drafting, (k, l1, l2) = ("iid", (1, 0, 4)) if verifier == "block" else ("delayed", (3, 1, 3))
    config = RunConfig(("delayed",), BOOK_TOKENS, temperature=0.8, delayed=Delayed(verifier, drafting, k, l1, l2))

    def count(units: range) -> Counter[str]:
        with recorded(verifier) as sums:
            for unit in units:
                embedded.written(config, unit)
        return sums

    return Case(f"{verifier}, embedded pair", str(config), BOOK_TEXTS, 1, count, _efficient)


def _identical(temperature: float, top_p: float) -> Case:
    config = RunConfig(COUPLED, COUPLED_TOKENS, temperature=temperature, top_p=top_p)

    def judge(counts: Counts) -> Verdict:
        equal = [counts.get(name, 0) for name in COUPLED]
        right = min(equal) == COUPLED_SEEDS
        return Verdict(right, (*(f"{count:.0f}" for count in equal), "identical" if right else "differs"))

    count = partial(embedded.identical, config)
    return Case(f"T {temperature:g}, top-p {top_p:g}", str(config), COUPLED_SEEDS, 1, count, judge)


GROUPS = (
    Group(
        "Laws",
        "The first three tokens, sampled by the engine, beside the exact law of the target.",
        ("trees and verifier", *OF_LAWS),
        tuple(_law(*item) for item in SETTINGS.items()),
    ),
    Group(
        "Mistakes",
        "The same test on engines with one mistake each, most of them on a quarter of the texts.",
        ("mistake", *OF_LAWS),
        tuple(map(_mistake, MISTAKES)),
    ),
    Group(
        "Coupled texts",
        f"Texts of {COUPLED_TOKENS} tokens that are identical to that of ar at the same seed, of {COUPLED_SEEDS} "
        "seeds, by method; the embedded pair in float32, after the beginnings of ten books in turn.",
        ("settings", *COUPLED, "verdict"),
        tuple(_identical(temperature, top_p) for temperature in (0.3, 0.6, 1.0) for top_p in (1.0, 0.9)),
    ),
    Group(
        "Tokens a round",
        "Expected by the closed form, given each tree, and realised; z of their difference.",
        ("verifier", "rounds", "expected", "realised", "z", "verdict"),
        (*map(_toy_efficiency, VERIFIER_NAMES), *map(_book_efficiency, VERIFIER_NAMES)),
    ),
)
