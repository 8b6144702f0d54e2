"""Reports and refusals of modules that compute whole paths."""

import functools

import pytest
import torch

from decoder.errors import ConfigError, PairError
from decoder.forward.language_model import LanguageModel
from decoder.forward.layer_kinds import FAMILIES as KNOWN
from decoder.forward.layer_kinds import UNCAPTURED, takes_paths
from decoder.forward.static.static_forward import static_forward
from decoder.models.compatibility import probe
from decoder.run import decoding_path
from decoder.run.decoding_path import PATHS, expected_path
from tests.decoder.any_family import PROMPT, engine_of
from tests.decoder.fixed_tree import plain
from tests.decoder.path_families import FAMILIES, FURTHER, USUAL, target_of
from tests.decoder.tensor_parallel.started_ranks import require_spreadable

target = functools.cache(target_of)


def test_loading_leaves_the_weights_as_they_are() -> None:
    """RWKV divides weights in place by a configuration value, so no other value of it is tried."""
    module = target_of("rwkv")
    before = plain(module, PROMPT)
    probe(LanguageModel.of_module(module, "rwkv"))
    assert torch.equal(plain(module, PROMPT), before)


def test_the_known_families_are_those_of_the_tests() -> None:
    assert {*KNOWN} == {*USUAL, *FURTHER}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_configuration_tells_whole_paths_where_the_type_or_alibi_does(family: str) -> None:
    assert takes_paths(target(family).config.get_text_config()) == (family != "big_bird")


def test_rounds_are_told_to_be_slower() -> None:
    engine = engine_of(target("bloom"))
    assert decoding_path.decoding_path(engine).reason == PATHS
    config = target("bloom").config
    assert expected_path({"target": config, "draft": config}, torch.device("cpu"), exact=False).reason == PATHS


def test_rounds_on_a_device_with_graphs_are_expected_to_be_the_host_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding_path, "has_graphs", lambda _: True)
    config = target("bloom").config
    path = expected_path({"target": config, "draft": config}, torch.device("cuda"), exact=False)
    assert path == decoding_path.DecodingPath(decoding_path.HOST, UNCAPTURED)


def test_what_needs_rows_refuses_whole_paths() -> None:
    model = engine_of(target("bloom")).pair.target
    probe(model)
    with pytest.raises(PairError, match=r"caches of its own.*leave out --exact"):
        model.exact()
    with pytest.raises(PairError, match=r"caches of its own.*leave out streaming"):
        model.streaming(2, 8)
    with pytest.raises(PairError, match="a module that computes whole paths"):
        static_forward(model)
    with pytest.raises(ConfigError, match=r"keeps a cache of its own.*start one process"):
        require_spreadable(target("bloom").config)
