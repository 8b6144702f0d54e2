"""Models of the hub: the cache first, and one request where a file is missing."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars

from decoder import load_pair
from decoder.errors import ModelError, PromptError
from decoder.models import hf_checkpoints, hub
from decoder.models.checkpoints import EMBEDDED_DRAFT, load_config, load_model, load_tokenizer
from decoder.models.heads import head_shape
from dynatui.lab.bench.data_sets.sources import HubFiles, local_files
from tests.decoder.models.hub_cache import cached
from tests.lab.bench.data_sets.fake_hub import Hub, serving
from tests.lab.bench.data_sets.makers import heard

NAME = "someone/small"
FILES = {path.name: path.read_bytes() for path in EMBEDDED_DRAFT.iterdir() if path.is_file()}
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "_listings", {})
    monkeypatch.setattr(hub, "_failures", {})
    monkeypatch.setattr(hub, "_commits", {})
    return tmp_path / "cache"


def asking_at(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"{endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    )


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving(Hub({f"{NAME}/{name}": content for name, content in FILES.items()})) as hub_:
        asking_at(hub_.endpoint, monkeypatch)
        yield hub_


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A server that takes requests and never answers."""
    monkeypatch.setattr(hub, "PATIENCE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=50) as listening:
        asking_at(f"http://127.0.0.1:{listening.getsockname()[1]}", monkeypatch)
        yield listening


def requests_to(listening: socket.socket) -> int:
    """Number of requests about a repository; the library also asks for a list of coding agents."""
    count = 0
    listening.settimeout(0.01)
    while True:
        try:
            connection, _ = listening.accept()
        except TimeoutError:
            return count
        with connection:
            connection.settimeout(0.1)
            count += b"/api/agent-harnesses" not in connection.recv(1000).splitlines()[0]


def test_a_cached_pair_is_loaded_without_any_request(cache: Path, served: Hub) -> None:
    for name in ("someone/target", "someone/draft"):
        cached(cache, name, EMBEDDED_DRAFT)
    engine = load_pair("someone/target", "someone/draft", device="cpu", dtype="float32")
    assert (engine.pair.target_name, engine.pair.draft_name) == ("someone/target", "someone/draft")
    assert not served.request


def test_transformers_reads_cached_models_without_any_request(cache: Path, served: Hub) -> None:
    cached(cache, NAME, EMBEDDED_DRAFT)
    assert hf_checkpoints.load_config(NAME).model_type
    assert hf_checkpoints.load_module(NAME, torch.float32, CPU)
    assert hf_checkpoints.load_tokenizer(NAME).get_vocab()
    assert not served.request


def test_a_cached_model_needs_no_optional_file(cache: Path, served: Hub) -> None:
    place = cached(cache, NAME, EMBEDDED_DRAFT)
    (place / "generation_config.json").unlink(missing_ok=True)
    assert load_model(NAME, CPU, torch.float32)
    assert head_shape(NAME) is None
    assert not served.request


def test_a_model_is_downloaded_after_one_question_and_is_then_in_the_cache(
    served: Hub, capfd: pytest.CaptureFixture[str]
) -> None:
    enable_progress_bars()
    with heard("huggingface_hub") as lines:
        load_config(NAME)
        assert not [path for path in served.request if path.endswith(".safetensors")]
        load_tokenizer(NAME)
        load_model(NAME, CPU, torch.float32)
    assert sum(path.startswith("/api/models/") for path in served.request) == 1
    assert (lines, capfd.readouterr()) == ([], ("", ""))
    assert are_progress_bars_disabled()
    served.request.clear()
    load_config(NAME)
    load_model(NAME, CPU, torch.float32)
    assert not served.request


def test_missing_files_are_those_of_the_cached_commit(cache: Path, served: Hub) -> None:
    place = cached(cache, NAME, EMBEDDED_DRAFT)
    weights = place / "model.safetensors"
    weights.unlink()
    assert load_model(NAME, CPU, torch.float32)
    assert weights.read_bytes() == FILES["model.safetensors"]
    assert all("main" not in path for path in served.request)


def test_a_named_branch_is_asked_for_once_and_its_newest_commit_is_loaded(cache: Path, served: Hub) -> None:
    cached(cache, NAME, EMBEDDED_DRAFT)
    served.commit = "1" * 40
    name = f"{NAME}@main"
    assert load_model(name, CPU, torch.float32)
    load_config(name)
    assert sum(path.startswith("/api/models/") for path in served.request) == 1
    place = hub.cached_folder(name)
    assert place is not None
    assert (place.name, hub.cached_folder(NAME)) == (served.commit, place)


def test_a_named_branch_that_has_not_moved_is_not_downloaded_again(cache: Path, served: Hub) -> None:
    cached(cache, NAME, EMBEDDED_DRAFT)
    assert load_model(f"{NAME}@main", CPU, torch.float32)
    assert [path for path in served.request if not path.startswith("/api/models/")] == []


@pytest.mark.usefixtures("served")
def test_a_named_branch_is_taken_from_the_cache_while_the_hub_cannot_be_asked(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached(cache, NAME, EMBEDDED_DRAFT)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    said = list[str]()
    ready = hub.tell.set(said.append)
    assert load_model(f"{NAME}@main", CPU, torch.float32)
    hub.tell.reset(ready)
    assert said[-1] == f"the Hugging Face hub cannot be asked about {NAME}@main: its cached commit is used"
    with pytest.raises(ModelError, match="someone/small@v2: it is not in the local cache"):
        load_config(f"{NAME}@v2")


def test_a_named_commit_in_the_cache_needs_no_request(cache: Path, served: Hub) -> None:
    place = cached(cache, NAME, EMBEDDED_DRAFT)
    assert load_model(f"{NAME}@{place.name}", CPU, torch.float32)
    assert not served.request


@pytest.mark.parametrize("name", [f"{NAME}@", f"{NAME}@../../x", f"{NAME}@/etc", f"{NAME}@a b", "a b@main"])
def test_what_is_no_revision_is_no_hub_id(name: str) -> None:
    assert not hub.is_hub_id(name)


@pytest.mark.parametrize("missing", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_hub_that_never_answers_is_asked_once_within_the_time_limit(
    cache: Path, silent: socket.socket, missing: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (cached(cache, NAME, EMBEDDED_DRAFT) / missing).unlink()
    said: list[str] = []
    with heard("huggingface_hub") as lines:
        for _ in range(2):
            with pytest.raises(
                ModelError, match=rf"cannot load {NAME}: it is only partly in .* not answer within 0.2 s; "
            ):
                load_pair(NAME, "lookup", device="cpu", dtype="float32", report=said.append)
    assert said.count(f"asking the Hugging Face hub about {NAME}, at most 0.2 s") == 1
    assert requests_to(silent) <= 1
    assert (lines, capfd.readouterr()) == ([], ("", ""))


def test_a_draft_and_a_data_set_wait_no_longer_for_a_hub_that_never_answers(cache: Path, silent: socket.socket) -> None:
    cached(cache, NAME, EMBEDDED_DRAFT)
    with pytest.raises(ModelError, match="cannot load someone/else: it is not in the local cache"):
        load_pair(NAME, "someone/else", device="cpu", dtype="float32")
    with pytest.raises(PromptError, match="does not answer within"):
        local_files(HubFiles("someone/books", "data/*.parquet"))
    assert requests_to(silent) <= 2


def test_a_hub_that_refuses_is_quoted(served: Hub) -> None:
    served.refuses = 404, "RepoNotFound"
    with pytest.raises(ModelError, match="the model does not exist, or is not public; check HF_ENDPOINT and HF_TOKEN"):
        load_config(NAME)


def test_offline_nothing_is_asked(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE is set, and the cache lacks the model; unset HF_HUB_OFFLINE"):
        load_config(NAME)
    assert not served.request


def test_an_adapter_alone_needs_no_configuration_of_a_model(cache: Path, served: Hub) -> None:
    place = cached(cache, NAME, EMBEDDED_DRAFT)
    for path in place.iterdir():
        path.unlink()
    (place / "adapter_config.json").write_text("{}", encoding="utf-8")
    assert hub.hub_file(NAME, "adapter_config.json")
    assert hub.hub_file(NAME, "config.json") is None
    assert not served.request
