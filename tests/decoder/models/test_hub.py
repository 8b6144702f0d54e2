"""Models of the hub: the cache first, and one request where a file is missing; progress while models are downloaded and
loaded.
"""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars
from transformers.utils import logging

from decoder import load_pair
from decoder.errors import ModelError, PromptError
from decoder.forward.language_model import LanguageModel
from decoder.models import hf_checkpoints, hub
from decoder.models import load_progress as reading
from decoder.models.checkpoints import EMBEDDED_DRAFT, load_config, load_model, load_tokenizer
from decoder.models.heads import head_shape
from dynatui.lab.bench.data_sets import HubFiles, local_files
from tests.decoder.makers import TinyModels
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


@pytest.fixture
def place(cache: Path) -> Path:
    """The folder of a model in the cache."""
    return cached(cache, NAME, EMBEDDED_DRAFT)


def load(name: str = NAME) -> LanguageModel:
    return load_model(name, CPU, torch.float32)


def test_a_cached_pair_is_loaded_without_any_request(cache: Path, served: Hub) -> None:
    for name in ("someone/target", "someone/draft"):
        cached(cache, name, EMBEDDED_DRAFT)
    engine = load_pair("someone/target", "someone/draft", device="cpu", dtype="float32")
    assert (engine.pair.target_name, engine.pair.draft_name) == ("someone/target", "someone/draft")
    assert not served.request


@pytest.mark.usefixtures("place")
def test_transformers_reads_cached_models_without_any_request(served: Hub) -> None:
    assert hf_checkpoints.load_config(NAME).model_type
    assert hf_checkpoints.load_module(NAME, torch.float32, CPU)
    assert hf_checkpoints.load_tokenizer(NAME).get_vocab()
    assert not served.request


def test_a_cached_model_needs_no_optional_file_and_a_named_commit_no_request(place: Path, served: Hub) -> None:
    (place / "generation_config.json").unlink(missing_ok=True)
    assert load()
    assert load(f"{NAME}@{place.name}")
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
        load()
    assert sum(path.startswith("/api/models/") for path in served.request) == 1
    assert (lines, capfd.readouterr()) == ([], ("", ""))
    assert are_progress_bars_disabled()
    served.request.clear()
    load_config(NAME)
    load()
    assert not served.request


def test_missing_files_are_those_of_the_cached_commit(place: Path, served: Hub) -> None:
    weights = place / "model.safetensors"
    weights.unlink()
    assert load()
    assert weights.read_bytes() == FILES["model.safetensors"]
    assert all("main" not in path for path in served.request)


@pytest.mark.usefixtures("place")
def test_a_named_branch_is_asked_for_once_and_its_newest_commit_is_loaded(served: Hub) -> None:
    served.commit = "1" * 40
    name = f"{NAME}@main"
    assert load(name)
    load_config(name)
    assert sum(path.startswith("/api/models/") for path in served.request) == 1
    newest = hub.cached_folder(name)
    assert newest is not None
    assert (newest.name, hub.cached_folder(NAME)) == (served.commit, newest)


@pytest.mark.usefixtures("place")
def test_a_named_branch_that_has_not_moved_is_not_downloaded_again(served: Hub) -> None:
    assert load(f"{NAME}@main")
    assert [path for path in served.request if not path.startswith("/api/models/")] == []


@pytest.mark.usefixtures("served", "place")
def test_a_named_branch_is_taken_from_the_cache_while_the_hub_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    said = list[str]()
    ready = hub.tell.set(said.append)
    assert load(f"{NAME}@main")
    hub.tell.reset(ready)
    assert said[-1] == f"the Hugging Face hub cannot be asked about {NAME}@main: its cached commit is used"
    with pytest.raises(ModelError, match="someone/small@v2: it is not in the local cache"):
        load_config(f"{NAME}@v2")


@pytest.mark.parametrize("name", [f"{NAME}@", f"{NAME}@../../x", f"{NAME}@/etc", f"{NAME}@a b", "a b@main"])
def test_what_is_no_revision_is_no_hub_id(name: str) -> None:
    assert not hub.is_hub_id(name)


@pytest.mark.parametrize("missing", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_hub_that_never_answers_is_asked_once_within_the_time_limit(
    place: Path, silent: socket.socket, missing: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (place / missing).unlink()
    said: list[str] = []
    with heard("huggingface_hub") as lines:
        for _ in range(2):
            told = rf"cannot load {NAME}: it is only partly in .* not answer within 0.2 s; "
            with pytest.raises(ModelError, match=told):
                load_pair(NAME, "lookup", device="cpu", dtype="float32", report=said.append)
    assert said.count(f"asking the Hugging Face hub about {NAME}, at most 0.2 s") == 1
    assert requests_to(silent) <= 1
    assert (lines, capfd.readouterr()) == ([], ("", ""))


@pytest.mark.usefixtures("place")
def test_a_draft_and_a_data_set_wait_no_longer_for_a_hub_that_never_answers(silent: socket.socket) -> None:
    with pytest.raises(ModelError, match="cannot load someone/else: it is not in the local cache"):
        load_pair(NAME, "someone/else", device="cpu", dtype="float32")
    with pytest.raises(PromptError, match="does not answer within"):
        local_files(HubFiles("someone/books", "data/*.parquet"))
    assert requests_to(silent) <= 2


def test_a_hub_that_refuses_is_quoted_and_offline_nothing_is_asked(
    served: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.refuses = 404, "RepoNotFound"
    with pytest.raises(ModelError, match="the model does not exist, or is not public; check HF_ENDPOINT and HF_TOKEN"):
        load_config(NAME)
    served.request.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE is set, and the cache lacks the model; unset HF_HUB_OFFLINE"):
        load_config(f"{NAME}-other")
    assert not served.request


def test_an_adapter_alone_needs_no_configuration_of_a_model(place: Path, served: Hub) -> None:
    for path in place.iterdir():
        path.unlink()
    (place / "adapter_config.json").write_text("{}", encoding="utf-8")
    assert hub.hub_file(NAME, "adapter_config.json")
    assert hub.hub_file(NAME, "config.json") is None
    assert not served.request


HUB_ID = "owner/model"


def test_the_share_of_the_weights_is_told_for_each_model(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_EVERY_S", 0.0)
    told, pair = list[str](), tiny_models.pair("neox")
    steps: Any = {"report": lambda step: told.append(step.split()[0]), "progress": told.append}
    load_pair(str(pair.target), str(pair.draft), device="cpu", dtype="float32", **steps)
    first = told.index("loading")
    second = told.index("loading", first + 1)
    for shares in (told[first + 1 : second], told[second + 1 :]):
        percent = [int(share.removesuffix(" % of its weights")) for share in shares]
        assert percent == sorted(percent)
        assert percent[0] == 0
        assert percent[-1] > 80


def test_a_download_is_told_by_what_has_come_since_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_EVERY_S", 0.01)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    blobs = tmp_path / "models--owner--model" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "earlier").write_bytes(bytes(7_000_000))
    told, heard = list[str](), threading.Event()

    def tell(progress: str) -> None:
        told.append(progress)
        heard.set()

    with reading.downloading(HUB_ID, tell):
        for size in (3_000_000, 5_000_000):
            heard.clear()
            (tmp_path / "written").write_bytes(bytes(size))
            (tmp_path / "written").replace(blobs / "abc.incomplete")  # in one step, so that no partial size is reported
            assert heard.wait(10)
    assert told[-1] == "5 MB downloaded"
    assert reading._downloads(str(tmp_path)) == (), "a folder is no download"


def test_bars_are_as_before_when_it_is_over() -> None:
    with pytest.raises(RuntimeError), reading.downloading(HUB_ID, print):
        raise RuntimeError
    assert logging._tqdm_hook is None
