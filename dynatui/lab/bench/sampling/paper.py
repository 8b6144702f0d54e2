"""The paper's average for each verifier, over data sets, sampling settings and three pairs of large models.

"The paper" is the one that `decoder.verify.lossless` cites; the numbers are in the column Average of its tables 2, 3, 6
and 7. For the paper's delayed trees, a selector chooses the shape in each round.
"""

from collections.abc import Mapping

NAMES = {
    "khisti": "Khisti",
    "naive_tree": "NaiveTree",
    "naive": "Naive",
    "nss": "NSS",
    "specinfer": "SpecInfer",
    "spectr": "SpecTr",
    "block": "BV",
    "traversal": "Traversal",
}
"""The paper's names of the verifiers, in the order of the rows of its tables 8 to 15."""
TASKS = {
    "writing": "Writing",
    "coding": "Coding",
    "translation": "Translation",
    "math_reasoning": "Math (E)",
    "math": "Math (H)",
}
"""Column heads of the paper's tables 8 and 9, by the task of Spec-Bench that replaces the column's data set."""
BLOCK_EFFICIENCY: Mapping[str, float] = {
    "nss": 4.05,
    "block": 4.30,
    "khisti": 4.41,
    "naive_tree": 4.50,
    "naive": 4.52,
    "specinfer": 4.58,
    "spectr": 4.61,
    "traversal": 5.31,
}
TOKENS_PER_SECOND: Mapping[str, float] = {
    "nss": 11.91,
    "naive": 12.44,
    "khisti": 12.75,
    "naive_tree": 13.29,
    "spectr": 13.32,
    "block": 13.36,
    "specinfer": 13.55,
    "traversal": 15.89,
}
DELAYED_BLOCK_EFFICIENCY: Mapping[str, float] = {
    "nss": 4.48,
    "naive_tree": 4.94,
    "specinfer": 5.03,
    "spectr": 5.05,
    "khisti": 5.23,
}
DELAYED_TOKENS_PER_SECOND: Mapping[str, float] = {
    "khisti": 14.83,
    "nss": 15.05,
    "naive_tree": 16.18,
    "spectr": 16.40,
    "specinfer": 16.69,
}
