"""A real llama.cpp server keeps the promise of a profile of the embedded pair, or breaks it in a way that is named."""

import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.gguf_files import write
from decoder.models.checkpoints import EMBEDDED_DRAFT
from dynatui import main as cli
from tests.gguf_pair import GgufPair, needs_llama_cpp

pytestmark = needs_llama_cpp
SERVER = Path(__file__).with_name("llama_server.py")
PROMPTS = [
    *(
        "The door opened and",
        "It was late, and the house",
        "Call me",
        "She looked at him and",
        "In the morning the old",
    ),
    *(
        "There was nothing in the room but",
        "He said that he would",
        "The captain of the ship",
        "My dear friend, I have",
    ),
]
REQUEST = {"n_predict": 60, "temperature": 0, "top_k": 1, "cache_prompt": False}


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("profile") / "mine.json"
    prompts = [word for prompt in PROMPTS for word in ("--prompt", prompt)]
    assert cli.main(["profile", *prompts, "--max-new-tokens", "60", "--output", str(path)]) == 0
    return path


@contextmanager
def serving(target: Path, *draft: object) -> Iterator[str]:
    """The URL of a server that answers requests until the end."""
    command = [sys.executable, str(SERVER), str(target), *map(str, draft)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        url, over = server.stdout.readline().strip(), threading.Event()
        client = threading.Thread(target=ask, args=(url, over))
        client.start()
        try:
            yield url
        finally:
            over.set()
            client.join()
            server.kill()


def ask(url: str, over: threading.Event) -> None:
    while not over.is_set():
        for prompt in PROMPTS:
            body = json.dumps({"prompt": prompt, **REQUEST}).encode()
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(f"{url}/completion", body, headers)  # noqa: S310 - of this machine
            urllib.request.urlopen(request, timeout=60).read()  # noqa: S310
            if over.is_set():
                return


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """The embedded draft with weights of chance."""
    torch.manual_seed(1)
    folder = tmp_path / "broken"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_bytes((EMBEDDED_DRAFT / name).read_bytes())
    weights = load_file(EMBEDDED_DRAFT / "model.safetensors")
    noise = {name: 0.05 * torch.randn(each.shape) for name, each in weights.items()}
    save_file(noise, folder / "model.safetensors")
    return write(folder, tmp_path / "broken.gguf")


def judged(profile: Path, url: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Sequence[str]]:
    capsys.readouterr()
    options = ("--draft-tokens", "4", "--headless", "--interval", "0.5", "--polls", "12")
    code = cli.main(["attach", url, "--expect", str(profile), *options])
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    return code, [finding["cause"] for finding in last["findings"]]


def test_a_server_that_drafts_as_advised_keeps_its_promise(
    profile: Path, gguf_pair: GgufPair, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(gguf_pair.target(), gguf_pair.draft(), 4, "draft-simple") as url:
        assert judged(profile, url, capsys) == (0, [])


@pytest.mark.parametrize(("options", "cause"), [((4,), "off"), ((7, "draft-simple"), "length")])
def test_a_draft_that_is_only_loaded_or_drafts_three_tokens_more_breaks_it(
    profile: Path, gguf_pair: GgufPair, capsys: pytest.CaptureFixture[str], options: tuple[object, ...], cause: str
) -> None:
    with serving(gguf_pair.target(), gguf_pair.draft(), *options) as url:
        assert judged(profile, url, capsys) == (5, [cause])


def test_a_draft_whose_weights_are_broken_breaks_it(
    profile: Path, gguf_pair: GgufPair, broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(gguf_pair.target(), broken, 4, "draft-simple") as url:
        assert judged(profile, url, capsys) == (5, ["broken"])
