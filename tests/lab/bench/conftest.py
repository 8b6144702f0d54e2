"""Fixtures of the tests of benchmarks."""

import json

import pytest


@pytest.fixture(scope="session")
def config_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Paths of a target's and a draft's configuration, without weights."""
    home = tmp_path_factory.mktemp("shapes")
    common = {"model_type": "gpt_neox", "vocab_size": 288, "max_position_embeddings": 192, "eos_token_id": None}
    for name, (hidden, layers, inner) in {"target": (32, 2, 64), "draft": (16, 1, 32)}.items():
        fields = {"hidden_size": hidden, "num_hidden_layers": layers, "intermediate_size": inner}
        (home / f"{name}.json").write_text(json.dumps(common | fields | {"num_attention_heads": 2}))
    return str(home / "target.json"), str(home / "draft.json")
