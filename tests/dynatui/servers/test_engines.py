"""What is pasted: it parses, says what was advised, and names only options that the engine has."""

import ast
import bisect
import json
import os
import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from msgspec import structs
from transformers import GenerationConfig

from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET
from dynatui.servers.engines import ENGINES, Band, Deployment, Engine, Tree, commands
from tests.dynatui.servers.profiles import CODE

VLLM, SGLANG, LLAMA_CPP, TENSORRT_LLM, TRANSFORMERS = ENGINES.values()
BANDS = (Band(1, 16, 5), Band(17, 40, 3), Band(41, 64, 0))
HEAD = Deployment(
    target="org/Target-8B@v2",
    draft="org/Head@main",
    kind="eagle3",
    k=5,
    bands=BANDS,
    most=64,
    survival=CODE[:5],
    length=1 + sum(CODE[:5]),
)
TREE = Tree(5, 2, 11)


def blocks(engine: Engine, deployment: Deployment, tree: Tree | None = None) -> Iterator[str]:
    branched = {"tree": structs.replace(deployment, tree=tree)} if tree else {}
    found = commands(engine, deployment.target, deployment.most, advised=deployment, **branched)
    yield from (text for _, text in found.blocks())


def words(command: str) -> list[str]:
    """Of the command, after a file that it writes before."""
    return shlex.split(command.rpartition("END\n")[2].replace("\\\n", " "))


def after(command: str, flag: str) -> str:
    given = words(command)
    return given[given.index(flag) + 1]


def file_in(command: str) -> str:
    return command.partition("<<'END'\n")[2].rpartition("\nEND\n")[0]


def test_vllm_is_told_a_schedule_that_its_checks_accept() -> None:
    advised, baseline, synthetic = blocks(VLLM, HEAD)
    assert words(baseline) == ["vllm", "serve", "org/Target-8B", "--revision", "v2"]
    assert words(advised)[:5] == words(baseline)
    assert json.loads(after(advised, "--speculative-config")) == {
        "method": "eagle3",
        "model": "org/Head",
        "revision": "main",
        "num_speculative_tokens": 5,
        "num_speculative_tokens_per_batch_size": [[1, 16, 5], [17, 40, 3], [41, 64, 0]],
    }
    config = json.loads(after(synthetic, "--speculative-config"))
    assert config["rejection_sample_method"] == "synthetic"
    rates = config["synthetic_acceptance_rates"]
    assert len(rates) == config["num_speculative_tokens"]
    assert rates == sorted(rates, reverse=True) == pytest.approx(CODE[:5])


def test_vllm_names_no_model_for_what_is_in_the_target_or_needs_none() -> None:
    for kind, method in (("mtp", "mtp"), ("lookup", "ngram")):
        advised = next(blocks(VLLM, structs.replace(HEAD, kind=kind, bands=())))
        config = json.loads(after(advised, "--speculative-config"))
        assert config["method"] == method
        assert not {"model", "num_speculative_tokens_per_batch_size"} & config.keys()
    drawn = structs.replace(HEAD, rule="probabilistic", levels_at_once=8)
    config = json.loads(after(next(blocks(VLLM, drawn)), "--speculative-config"))
    assert (config["draft_sample_method"], config["parallel_drafting"]) == ("probabilistic", True)


def test_sglang_is_told_a_chain_with_a_file_of_steps_by_batch_size_or_a_tree() -> None:
    advised, tree, baseline, synthetic = blocks(SGLANG, HEAD, TREE)
    assert json.loads(file_in(advised)) == {
        "1": {"candidate_steps": [5]},
        "17": {"candidate_steps": [3]},
        "41": {"candidate_steps": [0]},
    }
    chain = words(advised)[words(advised).index("--speculative-num-steps") :]
    assert chain[:6] == [
        *("--speculative-num-steps", "5", "--speculative-eagle-topk", "1"),
        *("--speculative-num-draft-tokens", "6"),
    ]
    assert after(advised, "--speculative-adaptive-config") in advised.partition("<<")[0]
    assert (after(tree, "--speculative-eagle-topk"), after(tree, "--speculative-num-draft-tokens")) == ("2", "11")
    assert "--speculative-adaptive" not in words(tree)
    assert "speculative" not in baseline
    assert synthetic.startswith(f"SGLANG_SIMULATE_ACC_LEN={1 + sum(CODE[:5]):.3f} python")


def test_llama_cpp_is_told_the_type_of_draft_without_which_it_would_only_load_it() -> None:
    small = structs.replace(HEAD, target="/models/target.gguf", draft="org/Small-1B", kind="model", bands=(), p_min=0.4)
    advised, baseline, synthetic = blocks(LLAMA_CPP, small)
    assert words(baseline) == ["llama-server", "-m", "/models/target.gguf", "-np", "64", "--metrics"]
    assert words(advised)[6:] == [
        *("--spec-draft-model", "Small-1B.gguf", "--spec-type", "draft-simple"),
        *("--spec-draft-n-max", "5", "--spec-draft-p-min", "0.4"),
    ]
    assert after(synthetic, "--spec-synth-rates") == "0.837,0.685,0.562,0.46,0.368"
    block = commands(LLAMA_CPP, small.target, 64, advised=small).advised
    assert block
    assert block.notes == ("it reads GGUF files: convert Small-1B first",)
    within = next(blocks(LLAMA_CPP, structs.replace(small, kind="mtp")))
    assert "--spec-draft-model" not in words(within)
    assert after(within, "--spec-type") == "draft-mtp"


def test_tensorrt_llm_is_told_a_schedule_by_the_largest_batch_or_a_tree() -> None:
    advised, tree, baseline = blocks(TENSORRT_LLM, HEAD, TREE)
    assert words(baseline) == ["trtllm-serve", "org/Target-8B"]
    assert after(advised, "--config") in advised.partition("<<")[0]
    fields = msgspec.yaml.decode(file_in(advised))["speculative_config"]
    assert fields == {
        "decoding_type": "Eagle3",
        "max_draft_len": 5,
        "speculative_model": "org/Head",
        "draft_len_schedule": {16: 5, 40: 3},
    }
    fields = msgspec.yaml.decode(file_in(tree))["speculative_config"]
    assert (fields["dynamic_tree_max_topK"], fields["max_total_draft_tokens"]) == (2, 10)
    assert "draft_len_schedule" not in fields


def test_the_program_for_transformers_drafts_as_many_tokens_as_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    """`generate` takes them from the assistant; the program is run with the embedded pair."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pair = {"target": str(EMBEDDED_TARGET), "draft": str(EMBEDDED_DRAFT)}
    advised = next(blocks(TRANSFORMERS, structs.replace(HEAD, kind="model", bands=(), k=3, **pair)))
    seen: dict[str, Any] = {}
    exec(compile(advised.replace('"auto"', '"cpu"').replace("256", "8"), "program", "exec"), seen)  # noqa: S102 - our own text
    assert seen["assistant"].generation_config.num_assistant_tokens == 3
    assert isinstance(seen["output"], torch.Tensor)
    for kind in ("mtp", "lookup"):
        text = next(blocks(TRANSFORMERS, structs.replace(HEAD, kind=kind, bands=())))
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        (call,) = (each for each in calls if ast.unparse(each.func) == "model.generate")
        given = {each.arg: ast.literal_eval(each.value) for each in call.keywords if each.arg}
        assert GenerationConfig().update(**given) == {}


FOLDER = os.environ.get("DYNATUI_ENGINES", "")
SOURCES = {
    "vllm": ("vllm/config/speculative.py", "vllm/engine/arg_utils.py", "vllm/config/model.py"),
    "sglang": (
        "sglang/srt/arg_groups/fields/spec.py",
        "sglang/srt/arg_groups/fields/model.py",
        "sglang/srt/environ.py",
    ),
    "llama.cpp": ("common/arg.cpp", "common/speculative.cpp"),
    "tensorrt-llm": ("tensorrt_llm/llmapi/llm_args.py",),
    "transformers": ("transformers/generation/configuration_utils.py",),
}
"""Files of each engine that declare its options."""


def text_of(file: str) -> str:
    """From an installed package, or from the folder that DYNATUI_ENGINES names; skips the test if it is in neither."""
    package = find_spec(file.partition("/")[0])
    places = [Path(place).parent for place in (package.submodule_search_locations or ())] if package else []
    for place in [*places, *([Path(FOLDER)] if FOLDER else [])]:
        if (place / file).is_file():
            return (place / file).read_text(encoding="utf-8")
    pytest.skip(f"{file} is neither installed nor in a folder named by DYNATUI_ENGINES")


def own(file: str, name: str) -> Any:
    """A function or method of the engine that needs nothing else of it but the standard library."""
    found: dict[str, Any] = {"bisect": bisect}
    nodes = ast.walk(ast.parse(text_of(file)))
    (function,) = (node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == name)
    source = f"from __future__ import annotations\n{ast.unparse(function)}"
    exec(compile(source, file, "exec"), found)  # noqa: S102 - the engine's own source
    return found[name]


def pasted(engine: Engine) -> Iterator[str]:
    """Everything that is ever printed for an engine."""
    for kind, rule, bands, p_min in product(engine.kinds, engine.rules, ((), BANDS), (None, 0.4)):
        tree = TREE if kind in engine.trees else None
        levels = 8 if kind in ("eagle3", "dflash") else 1
        given = structs.replace(HEAD, kind=kind, rule=rule, bands=bands, p_min=p_min, levels_at_once=levels)
        yield from blocks(engine, given, tree)


def declarations(engine: Engine, text: str) -> Iterator[str]:
    """Patterns of the lines of the engine's source that declare the options, fields and values of a text."""
    if engine == TRANSFORMERS:
        known = {"revision", "device_map", "return_tensors", "assistant_model", "inputs", "output"}
        yield from (rf"self\.{name} = " for name in {*re.findall(r"\b(\w+)=", text)} - known)
        return
    given = words(text)
    flags = [word for word in given if re.match("--?[a-z]", word) and (word != "-m" or engine == LLAMA_CPP)]
    if engine in (VLLM, LLAMA_CPP):
        yield from (f'"{flag}"' for flag in flags)
    elif engine == SGLANG:
        yield from (f"^    {flag.removeprefix('--').replace('-', '_')}: " for flag in flags)
        yield given[0].partition("=")[0] if "=" in given[0] else ""
    if "--speculative-config" in given:
        config = json.loads(after(text, "--speculative-config"))
        yield from (*(f"^    {key}: " for key in config), f'"{config["method"]}"')
    elif "--speculative-algorithm" in given:
        yield rf"\b{after(text, '--speculative-algorithm')}\b"
    elif "--spec-type" in given:
        yield f'"{after(text, "--spec-type")}"'
    elif engine == TENSORRT_LLM and "<<" in text:
        fields = msgspec.yaml.decode(file_in(text))["speculative_config"]
        yield from (*(f"^    {name}: " for name in fields), rf'Literal\["{fields["decoding_type"]}"\]')


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_every_option_is_in_the_engines_source(engine: Engine) -> None:
    source = "\n".join(map(text_of, SOURCES[engine.name]))
    for pattern in {each for text in pasted(engine) for each in declarations(engine, text)}:
        assert re.search(pattern, source, re.MULTILINE), pattern


def test_vllms_own_check_accepts_the_schedule() -> None:
    checked = own("vllm/v1/spec_decode/dynamic/utils.py", "validate_and_normalize_dynamic_sd_schedule")
    config = json.loads(after(next(blocks(VLLM, HEAD)), "--speculative-config"))
    schedule = config["num_speculative_tokens_per_batch_size"]
    assert list(map(list, checked(schedule))) == schedule


def test_sglangs_own_choice_of_steps_is_the_advised_number() -> None:
    closest = own("sglang/srt/speculative/adaptive_spec_params.py", "_find_closest_bs")
    steps = json.loads(file_in(next(blocks(SGLANG, HEAD))))
    slots = SimpleNamespace(_bs_list=sorted(map(int, steps)))
    for band in BANDS:
        routed = [steps[str(closest(slots, load))]["candidate_steps"] for load in (band.first, band.last)]
        assert routed == [[band.k], [band.k]]
