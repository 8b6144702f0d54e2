"""Files of a checkpoint in a folder or on the hub, ranges of the numbers in its configuration, and reasons why a file
cannot be read. Independent of model families.
"""

import codecs
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from safetensors import SafetensorError, safe_open

from decoder.errors import ModelError, PairError, first_line, quoted, shortened
from decoder.models.gguf_file import is_gguf
from decoder.models.hub import hub_file, is_hub_id, is_pointer, is_small

CONFIG, INDEX, SINGLE = "config.json", "model.safetensors.index.json", "model.safetensors"
_MARKS = ((codecs.BOM_UTF8, "UTF-8"), (codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16"))
_META = "params.json"
_UNSAFE = ("*.bin", "*.pth", "*.pt", "*.ckpt")
"""Patterns of names of pickled weight files, which are never opened."""
_AGAIN = "download the model again"


class Ends(msgspec.Struct, frozen=True):
    """End-of-text tokens, in the form in which a checkpoint lists them."""

    eos_token_id: Any = None


class Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]
    """File of each weight."""

    @property
    def files(self) -> list[str]:
        return sorted(set(self.weight_map.values()))


def decoded(content: bytes, kind: Any) -> Any:
    """Contents of a JSON file as an object of the type `kind`; None if the contents do not have this type."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def file_of(name: str, part: str) -> Path | None:
    """The file `part` of a hub id or folder, downloaded if necessary; None if there is no such file.

    Raises ModelError for a Git LFS pointer, or if the cache lacks the file and the request to the hub fails.
    """
    if is_gguf(name):
        return None
    if Path(name).is_dir():
        path = Path(name, part)
        if is_pointer(path):
            raise ModelError(
                f"{part} of {shortened(name)} is a Git LFS pointer, not the file itself; run git lfs pull in it"
            )
        return path if path.is_file() else None
    return hub_file(name, part) if is_hub_id(name) else None


def content_of(name: str, part: str) -> bytes | None:
    path = file_of(name, part)
    return path.read_bytes() if path else None


def check_texts(name: str) -> None:
    """Raises ModelError if a configuration or tokenizer file in a folder is a Git LFS pointer."""
    folder = Path(name)
    for path in folder.iterdir() if folder.is_dir() else ():
        if is_small(path.name):
            file_of(name, path.name)


def weight_files(name: str) -> list[Path]:
    """The safetensors files of a checkpoint, one or several; empty if a file is missing."""
    if single := file_of(name, SINGLE):
        return [single]
    index: Index | None = decoded(content_of(name, INDEX) or b"", Index)
    if index is None or any("/" in part for part in index.files):
        return []
    files = [file_of(name, part) for part in index.files]
    return [path for path in files if path] if all(files) else []


def weight_shapes(name: str) -> Mapping[str, tuple[int, ...]]:
    """Shapes of all weights in a checkpoint's safetensors files, by name; empty if files are missing or unreadable."""
    shapes = dict[str, tuple[int, ...]]()
    try:
        for path in weight_files(name):
            with safe_open(path, "pt") as file:
                shapes |= {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError):
        return {}
    return shapes


def weight_names(name: str) -> frozenset[str]:
    """Names of all weights of a checkpoint, from its index if there is one; empty if they cannot be read."""
    index: Index | None = decoded(content_of(name, INDEX) or b"", Index)
    return frozenset(index.weight_map if index else weight_shapes(name))


def config_fault(folder: Path) -> str:
    """Why a folder's configuration cannot be read, with a remedy; empty if the configuration can be read."""
    path = folder / CONFIG
    if path.is_file():
        return _content_fault(path.read_bytes())
    if (folder / _META).is_file():
        return (
            f"it is in Meta's format ({_META} without {CONFIG}); take the checkpoint in Hugging Face's format, or "
            "convert it with transformers' convert_llama_weights_to_hf"
        )
    return f"it has no {CONFIG}; give a folder with {CONFIG}, tokenizer and safetensors weights, or a hub id"


def _content_fault(content: bytes) -> str:
    if encoding := next((name for mark, name in _MARKS if content.startswith(mark)), None):
        remedy = "remove its first three bytes" if encoding == "UTF-8" else f"iconv -f {encoding} -t UTF-8 converts it"
        return f"{CONFIG} begins with a byte order mark ({encoding}), and JSON is UTF-8 without one; {remedy}"
    try:
        config = json.loads(content)
    except ValueError as error:
        return f"{CONFIG} is not JSON ({first_line(error)}); {_AGAIN}"
    if not isinstance(config, dict):
        return f"{CONFIG} is not a JSON object; {_AGAIN}"
    if not isinstance(config.get("model_type"), str):
        return f'{CONFIG} does not say the "model_type", "llama" for example; add it, or {_AGAIN}'
    return ""


def weights_fault(folder: Path) -> str:
    """Why a folder's safetensors weights cannot be read, with a remedy; empty if all of them can be read."""
    found, listed = sorted(folder.glob("*.safetensors")), list[str]()
    if (folder / INDEX).is_file():
        index: Index | None = decoded((folder / INDEX).read_bytes(), Index)
        if index is None:
            return f"{INDEX} cannot be read; {_AGAIN}"
        listed = index.files
    if missing := [name for name in listed if not (folder / name).is_file()]:
        count = f"{len(missing)} of its {len(listed)}"
        return f"it lacks {count} files with weights, for example {shortened(missing[0])}; {_AGAIN}"
    if not found:
        unsafe = next((path.name for each in _UNSAFE for path in sorted(folder.glob(each))), None)
        if unsafe is None:
            return f"it has no {SINGLE}; {_AGAIN}"
        return (
            f"its weights are in {shortened(unsafe)} only, and reading this file could run code; save them as "
            "safetensors (model.save_pretrained in transformers does), or take a checkpoint that has them"
        )
    if not listed and folder / SINGLE not in found:
        return f"it has {len(found)} files with weights but no {INDEX}, which lists them; {_AGAIN}"
    return next((fault for path in found if (fault := _broken(path))), "")


def _broken(path: Path) -> str:
    try:
        with safe_open(path, "pt") as file:
            file.keys()
    except (SafetensorError, OSError) as error:
        return f"{shortened(path.name)} is broken ({first_line(error)}); {_AGAIN}"
    return ""


LARGEST: Mapping[str, int] = {
    "num_hidden_layers": 1024,
    "num_attention_heads": 4096,
    "num_key_value_heads": 4096,
    "head_dim": 4096,
    "hidden_size": 2**18,
    "intermediate_size": 2**20,
    "vocab_size": 2**24,
    "max_position_embeddings": 2**31,
}
"""Upper bound of each size in a configuration: several times the size in the largest models."""
_KINDS = (
    (re.compile(r"(n|num|encoder|decoder)_(\w+_)?(layers?|blocks?)"), LARGEST["num_hidden_layers"]),
    (re.compile(r"(n|num)_(\w+_)?heads?"), LARGEST["num_attention_heads"]),
    (re.compile(r"(n|num)_(\w+_)?experts?(_\w+)?"), 2**16),
    (re.compile(r"n_embd|d_model"), LARGEST["hidden_size"]),
    (re.compile(r"n_positions|n_ctx|max_seq_len"), LARGEST["max_position_embeddings"]),
)
"""Upper bounds of further sizes, by patterns of their names in other families."""
OTHERS = 2**53
"""Bound of the absolute value of every other integer."""
FRACTIONS = 3.4e38
"""Bound of the absolute value of every other number, since models compute in float32 or less."""


def check_ranges(name: str, content: bytes) -> None:
    """Raises PairError if a number in a config.json is beyond its range. Content that is not JSON is not refused here,
    since the next reader of the file reports it.
    """
    for key, number in numbers("", decoded(content, Any)):
        most = largest(key) if isinstance(number, int) else FRACTIONS
        if abs(number) > most:
            span = f"1 to {most}" if isinstance(number, int) else f"between -{most} and {most}"
            raise PairError(
                f"the configuration of {name} says that {shortened(key)} is {quoted(number)}, but it must be {span}; "
                "download the model again"
            )


def largest(key: str) -> int:
    return LARGEST.get(key) or next((most for kind, most in _KINDS if kind.fullmatch(key)), OTHERS)


def numbers(key: str, value: object) -> Iterator[tuple[str, int | float]]:
    """All numbers in a JSON value, each with the name of its field."""
    match value:
        case bool():
            return
        case int() | float():
            yield key, value
        case dict():
            for inner, each in value.items():
                yield from numbers(inner, each)
        case list():
            for each in value:
                yield from numbers(key, each)
