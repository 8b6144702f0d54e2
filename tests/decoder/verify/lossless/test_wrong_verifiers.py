"""The exact test rejects all verifiers with plausible mistakes by a wide margin."""

import pytest

from tests.decoder.verify.lossless.enumeration import delayed_trees, emitted, models
from tests.decoder.verify.lossless.wrong_verifiers import WRONG, Wrong

TABLES = ("mixed", 0), ("generic", 5), ("mixed", 8), ("mixed", 9)
"""Cases chosen so that each mistake is visible in one of them."""


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.mistake)
def test_a_wrong_verifier_is_far_from_the_target(wrong: Wrong) -> None:
    pairs = [models(kind, wrong.shape.depth, seed) for kind, seed in TABLES]
    found = [emitted(wrong.verify, delayed_trees(wrong.shape, pair), pair, wrong.shape.depth) for pair in pairs]
    assert max(each.distance for each in found) > 0.05
