"""The paper's average for each verifier, over data sets, sampling settings and three pairs of large models.

The numbers are in the column Average of the paper's tables 2, 3, 6 and 7. In the paper's runs on delayed trees, a
selector chooses the shape of each round.
"""

from collections.abc import Mapping

VERIFIERS = {
    "khisti": ("Khisti", 4.41, 12.75, 5.23, 14.83),
    "naive_tree": ("NaiveTree", 4.50, 13.29, 4.94, 16.18),
    "naive": ("Naive", 4.52, 12.44, None, None),
    "nss": ("NSS", 4.05, 11.91, 4.48, 15.05),
    "specinfer": ("SpecInfer", 4.58, 13.55, 5.03, 16.69),
    "spectr": ("SpecTr", 4.61, 13.32, 5.05, 16.40),
    "block": ("BV", 4.30, 13.36, None, None),
    "traversal": ("Traversal", 5.31, 15.89, None, None),
}
"""By verifier, in the order of the rows of tables 8 to 15: the name in the paper, block efficiency and tokens per
second on i.i.d. trees, block efficiency and tokens per second on delayed trees.
"""
NAMES = {verifier: name for verifier, (name, *_) in VERIFIERS.items()}
TASKS = {
    "writing": "Writing",
    "coding": "Coding",
    "translation": "Translation",
    "math_reasoning": "Math (E)",
    "math": "Math (H)",
}
"""Column heads of the paper's tables 8 and 9, by the task of Spec-Bench that replaces the column's data set."""


def _column(place: int) -> Mapping[str, float]:
    """One column of `VERIFIERS`, by verifier, in ascending order of the numbers."""
    numbers = {verifier: row[place] for verifier, row in VERIFIERS.items()}
    known = {verifier: float(number) for verifier, number in numbers.items() if number is not None}
    return dict(sorted(known.items(), key=lambda item: item[1]))


BLOCK_EFFICIENCY, TOKENS_PER_SECOND, DELAYED_BLOCK_EFFICIENCY, DELAYED_TOKENS_PER_SECOND = map(_column, range(1, 5))
