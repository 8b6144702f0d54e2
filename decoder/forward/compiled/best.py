"""The best tokens of rows of logits, chosen by the compiled library."""

import ctypes
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from decoder.forward.compiled.library import Library
from decoder.sampling.noise import Offsets


def best_tokens(
    library: Library,
    logits: Float[Tensor, "N V"],
    count: int,
    offsets: Offsets | None = None,
    factors: Sequence[float] | None = None,
    *,
    own: bool = False,
) -> tuple[list[list[int]], list[list[float]], list[list[float]]]:
    """The `count` best tokens of each row on a CPU, best first; of equal ones, the one with the lower id comes first.

    Args:
        library: The library.
        logits: Rows in float32; the columns of a row are adjacent.
        count: Number of tokens, at most V.
        offsets: Numbers that are added to the logits; None: none.
        factors: Factor of each row on these sums, which are the scores; None: 1.
        own: Whether to compute the log-probabilities of the logits too.

    Returns:
        For each row: the tokens; their log-probabilities by the scores; and by the logits alone, if `own`. All
        log-probabilities of a row are NaN if its scores have NaN or plus infinity, or no finite number.
    """
    rows, vocabulary = logits.shape
    numbers = ctypes.c_float * (rows * count)
    tokens, logprobs, own_logprobs = (ctypes.c_int32 * (rows * count))(), numbers(), numbers() if own else None
    library.functions.dynatui_best(
        logits.data_ptr(),
        logits.stride(0),
        _addresses(offsets),
        None if factors is None else (ctypes.c_float * rows)(*factors),
        rows,
        vocabulary,
        count,
        tokens,
        logprobs,
        own_logprobs,
    )
    of_rows = [slice(row * count, (row + 1) * count) for row in range(rows)]
    return (
        [tokens[part] for part in of_rows],
        [logprobs[part] for part in of_rows],
        [own_logprobs[part] if own_logprobs else [] for part in of_rows],
    )


def chosen_tokens(library: Library, logits: Float[Tensor, "N V"], offsets: Offsets | None = None) -> list[int]:
    """The best token of each row on a CPU by logits plus offsets, the first of equal ones; -1 for a row whose logits
    have NaN or plus infinity, or no finite number. See `best_tokens` for the arguments.
    """
    rows, vocabulary = logits.shape
    tokens = (ctypes.c_int32 * rows)()
    library.functions.dynatui_choices(
        logits.data_ptr(), logits.stride(0), _addresses(offsets), rows, vocabulary, tokens
    )
    return list(tokens)


def _addresses(offsets: Offsets | None) -> "ctypes.Array[ctypes.c_void_p] | None":
    if offsets is None:
        return None
    return (ctypes.c_void_p * len(offsets))(*(row.data_ptr() for row in offsets))


def in_rows(logits: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
    """The logits in float32, the columns of a row side by side in memory."""
    rows = logits.float()
    return rows if rows.stride(-1) == 1 else rows.contiguous()
