"""A real llama.cpp server keeps the promise of a profile of the embedded pair, or breaks it in a way that is named."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.gguf_files import write
from decoder.models.checkpoints import EMBEDDED_DRAFT
from dynatui import main as cli
from dynatui.cli.attach import schedule
from dynatui.servers.attach.address import address
from dynatui.servers.attach.events import Findings
from dynatui.servers.attach.expectation import promises
from dynatui.servers.attach.session import Polling
from dynatui.servers.profile_file import read_profile
from dynatui.sources.server import polled
from tests.gguf_pair import GgufPair, needs_llama_cpp

pytestmark = needs_llama_cpp
SERVER = Path(__file__).with_name("llama_server.py")
PROMPTS = ("The door opened and", "It was late, and the house", "She looked at him and", "The captain of the ship")
REQUEST = {"n_predict": 60, "temperature": 0, "top_k": 1, "cache_prompt": False}


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("profile") / "mine.json"
    prompts = [word for prompt in PROMPTS for word in ("--prompt", prompt)]
    options = ("--max-new-tokens", "60", "--roofline", "100,1", "--output", str(path))
    assert cli.main(["profile", *prompts, *options]) == 0
    return path


@contextmanager
def serving(target: Path, *draft: object) -> Iterator[str]:
    command = [sys.executable, str(SERVER), str(target), *map(str, draft)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded draft with weights of chance."""
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("models") / "broken"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_bytes((EMBEDDED_DRAFT / name).read_bytes())
    weights = load_file(EMBEDDED_DRAFT / "model.safetensors")
    noise = {name: 0.05 * torch.randn(each.shape) for name, each in weights.items()}
    save_file(noise, folder / "model.safetensors")
    return write(folder, folder.with_suffix(".gguf"))


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("good", 4, "draft-simple"), []),
        (("good", 4), ["off"]),
        (("good", 7, "draft-simple"), ["length"]),
        (("broken", 4, "draft-simple"), ["broken"]),
    ],
    ids=["as advised", "a draft that is only loaded", "three tokens more", "broken weights"],
)
def test_a_server_keeps_its_promise_or_breaks_it_in_a_way_that_is_named(
    profile: Path, gguf_pair: GgufPair, broken: Path, options: tuple[object, ...], found: list[str]
) -> None:
    """Requests are sent between two polls, until enough rounds were drafted for a verdict."""
    draft = broken if options[0] == "broken" else gguf_pair.draft()
    with serving(gguf_pair.target(), draft, *options[1:]) as url:

        def ask(_: float) -> bool:
            for prompt in PROMPTS:
                body = json.dumps({"prompt": prompt, **REQUEST}).encode()
                headers = {"Content-Type": "application/json"}
                request = urllib.request.Request(f"{url}/completion", body, headers)  # noqa: S310 - of this machine
                urllib.request.urlopen(request, timeout=60).read()  # noqa: S310
            return False

        promised = promises(profile, read_profile(profile), None, schedule("4"), [])
        *_, last = polled(Polling(address(url), polls=3), None, promised=promised)(ask)
    assert isinstance(last, Findings)
    assert ([finding.cause for finding in last.findings], last.kept) == (found, not found)
