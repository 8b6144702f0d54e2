"""Lossless combinations of verifier and drafting are accepted, and biased combinations are refused."""

import pytest

from decoder.errors import ConfigError
from decoder.verify.names import VERIFIER_NAMES, Drafting, require_lossless


def test_every_verifier_takes_one_drawn_path() -> None:
    for name in VERIFIER_NAMES:
        for drafting in (Drafting.IID, Drafting.DELAYED, Drafting.SELECTOR):
            require_lossless(name, drafting, 1)


@pytest.mark.parametrize("name", [name for name in VERIFIER_NAMES if name != "block"])
def test_every_verifier_but_block_takes_several(name: str) -> None:
    require_lossless(name, "delayed", 4)


def test_block_takes_one_path_alone() -> None:
    with pytest.raises(ConfigError, match="verifier block takes one drafted path, not 4; give K = 1, or choose --ver"):
        require_lossless("block", "iid", 4)


@pytest.mark.parametrize("name", ["coupled", "nss"])
def test_a_deterministic_tree_takes_what_ignores_how_it_was_drafted(name: str) -> None:
    require_lossless(name, "tree", 4)


def test_drawn_trees_are_not_verified_under_the_noise_of_the_target() -> None:
    with pytest.raises(
        ConfigError,
        match=r"verifier coupled does not work on sampled trees.*choose another --verifier, for example traversal",
    ):
        require_lossless("coupled", "delayed")


@pytest.mark.parametrize("name", [name for name in VERIFIER_NAMES if name != "nss"])
def test_a_deterministic_tree_takes_nothing_else(name: str) -> None:
    with pytest.raises(ConfigError, match=f"verifier {name} is biased on deterministic trees.*choose --verifier nss"):
        require_lossless(name, "tree")


def test_unknown_names_are_refused_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match=r"verifier is 'best', .*choose from coupled, nss, naive,"):
        require_lossless("best", "iid")
    with pytest.raises(ConfigError, match=r"drafting is 'wild', .*choose from tree, iid, delayed, selector"):
        require_lossless("nss", "wild")
