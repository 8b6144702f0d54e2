"""Roots are collected from texts, once each, in files that stay complete after a kill."""

from pathlib import Path

import pytest
import torch
from msgspec import structs

from decoder.draft.delayed_shape import ACTIONS
from decoder.engine import Engine
from decoder.errors import ConfigError, PromptError
from decoder.selector.latency import SIZE
from decoder.selector.policy import SCALARS, TIMES, fingerprint
from dynatui.lab.selector.collect import (
    PART,
    TEST,
    VALIDATION,
    CollectionPlan,
    Roots,
    collect,
    load,
    read_manifest,
    shard,
)
from tests.decoder.makers import TinyModels

PROMPTS = ["The tree grows", "A door opens", "It rains"]
PLAN = CollectionPlan(("specinfer", "block"), (0.7, 1.0), (0.9,), new_tokens=12, every=5, trees=1)


@pytest.fixture(scope="module")
def engine(tiny_models: TinyModels) -> Engine:
    return tiny_models.loaded(tiny_models.pair("neox"), "float32")


@pytest.fixture(scope="module")
def whole(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "roots"
    lines = [step.line for step in collect(engine, PROMPTS, PLAN, folder)]
    assert lines == [f"{done} of 6 texts done, {2 * done} roots labelled in this run" for done in range(7)]
    return folder


def labels(folder: Path) -> dict[str, torch.Tensor]:
    """Contents of the files without times, which depend on the machine's load."""
    found = load(folder)
    same = {name: rows for name, rows in found.tensors.items() if not name.startswith("latency.")}
    return same | {"scalars": found.scalars[:, : TIMES.start]}


def assert_same(one: Path, other: Path) -> None:
    assert {path.name for path in one.iterdir()} == {path.name for path in other.iterdir()}
    for name, values in labels(one).items():
        torch.testing.assert_close(values, labels(other)[name], equal_nan=True)


def test_every_text_has_roots_at_equal_distances_with_features_labels_and_times(engine: Engine, whole: Path) -> None:
    roots = load(whole)
    assert len(roots) == 3 * 2 * 2
    assert roots.tensors["prompt"].unique().tolist() == [0, 1, 2]
    assert {number: len(each) for number, each in roots.by_setting().items()} == {0: 6, 1: 6}
    lengths = roots.scalars[:, SCALARS.index("logarithm of the text's length")].exp().round()
    first, second = lengths[::2], lengths[1::2]
    assert (second - first == PLAN.every).all()
    pair = fingerprint(engine.pair.observed())
    assert read_manifest(whole).pair == pair
    assert [rows.shape[1] for rows in roots.hidden] == list(pair.hidden)
    assert roots.scalars.isfinite().all()
    tokens = roots.tokens("specinfer")
    assert tokens.shape == (len(roots), len(ACTIONS))
    assert ((tokens >= 1) & (tokens <= 17)).all()
    assert roots.verifiers == ["block", "specinfer"]
    assert roots.tokens("block").isnan().any()
    times = roots.tensors["latency.specinfer"]
    assert times.shape == (len(roots), SIZE)
    assert any(torch.equal(roots.fastest("specinfer"), row) for row in times)
    assert roots.scalars[:, SCALARS.index("temperature")].unique().tolist() == pytest.approx([0.7, 1.0])


def test_prompts_are_trained_on_or_validated_on_or_judged_by(whole: Path) -> None:
    roots = load(whole)
    assert len(roots.training()) == len(roots)
    moved = Roots(roots.tensors | {"prompt": torch.arange(len(roots))})
    parts = [moved.training(), moved.part(VALIDATION), moved.part(TEST)]
    assert [sorted(set((part.tensors["prompt"] % PART).tolist())) for part in parts] == [[0, 1, 2], [3], [4]]
    assert sum(map(len, parts)) == len(roots)


def test_collecting_goes_on_after_a_kill_and_adds_only_what_is_missing(
    engine: Engine, whole: Path, tmp_path: Path
) -> None:
    """A generator that is suspended for ever has written as much as a killed process."""
    folder = tmp_path / "roots"
    killed = collect(engine, PROMPTS, PLAN, folder)
    assert [next(killed).share for _ in range(4)] == [0, 1 / 6, 2 / 6, 3 / 6]
    kept = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    # The remains of a file whose writing was killed.
    shard(folder, 5).with_name(f".{shard(folder, 5).name}.partial").write_bytes(b"half")
    steps = list(collect(engine, PROMPTS, PLAN, folder))
    assert [step.share for step in steps] == [3 / 6, 4 / 6, 5 / 6, 1]
    assert all(path.stat().st_mtime_ns == at for path, at in kept.items())
    assert_same(folder, whole)


def test_a_folder_of_another_collection_is_refused_and_so_is_what_has_no_roots(
    engine: Engine, whole: Path, tmp_path: Path
) -> None:
    for prompts, plan, folder, kind, said in (
        (PROMPTS, structs.replace(PLAN, every=4), whole, ConfigError, "was made with another plan; name a new folder"),
        ([*PROMPTS[:2], "x"], PLAN, whole, ConfigError, "another digest"),
        (PROMPTS, CollectionPlan(("coupled",)), tmp_path, ConfigError, "for verifier 'coupled'; choose from nss"),
        (PROMPTS, CollectionPlan(new_tokens=2, every=3), tmp_path, PromptError, "every text ended before its first ro"),
    ):
        with pytest.raises(kind, match=said):
            list(collect(engine, prompts, plan, folder))


def test_a_folder_that_holds_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no collection: No such file"):
        read_manifest(tmp_path)
    with pytest.raises(ConfigError, match="holds no labelled roots"):
        load(tmp_path)
    (tmp_path / "roots-000000.safetensors").write_bytes(b"half")
    with pytest.raises(ConfigError, match="is damaged"):
        load(tmp_path)
