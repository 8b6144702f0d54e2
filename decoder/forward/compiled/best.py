"""The best tokens of each row of logits, chosen by the compiled library."""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float
from torch import Tensor

from decoder.forward.compiled.library import Library


def best_tokens(
    library: Library, logits: Float[Tensor, "N V"], count: int, own: Float[Tensor, "N V"] | None
) -> Iterable[tuple[list[int], list[float], list[float]]]:
    """The `count` best tokens of each row on a CPU, best first; of equal ones, the one with the lower id comes first.

    Args:
        library: The library.
        logits: Rows in float32; the columns of a row are adjacent.
        count: Number of tokens, at most V.
        own: Further rows of logits of the same form.

    Returns:
        For each row, the tokens, their log-probabilities, and those in `own`, an empty list without it. All
        log-probabilities of a row are NaN if the row has a NaN or plus infinity, or no possible token.
    """
    rows, vocabulary = logits.shape
    tokens = np.empty((rows, count), dtype=np.int32)
    logprobs = np.empty((1 if own is None else 2, rows, count), dtype=np.float32)
    library.functions.dynatui_best(
        logits.data_ptr(),
        None if own is None else own.data_ptr(),
        logits.stride(0),
        0 if own is None else own.stride(0),
        rows,
        vocabulary,
        count,
        tokens.ctypes.data,
        logprobs[0].ctypes.data,
        logprobs[-1].ctypes.data,
    )
    owns = [list[float]() for _ in range(rows)] if own is None else logprobs[1].tolist()
    return zip(tokens.tolist(), logprobs[0].tolist(), owns, strict=True)
