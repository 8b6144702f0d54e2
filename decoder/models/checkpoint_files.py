"""Why the configuration or the weights of a checkpoint cannot be read: files that are missing, broken or of another
format. Knows no model.
"""

import codecs
import json
from pathlib import Path

from safetensors import SafetensorError, safe_open

from decoder.errors import first_line, shortened

CONFIG, INDEX, SINGLE = "config.json", "model.safetensors.index.json", "model.safetensors"
_MARKS = ((codecs.BOM_UTF8, "UTF-8"), (codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16"))
_META = "params.json"
"""Configuration in the format in which Meta publishes Llama."""
_UNSAFE = ("*.bin", "*.pth", "*.pt", "*.ckpt")
"""Names of weight files that Python's pickle reads."""
_AGAIN = "download the model again"


def config_fault(folder: Path) -> str:
    """The reason and the remedy, if a folder has no configuration that can be read; else empty."""
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
    """The reason and the remedy, if a folder lacks safetensors weights, or has some that cannot be read; else empty."""
    found, listed = sorted(folder.glob("*.safetensors")), _listed(folder / INDEX)
    if listed is None:
        return f"{INDEX} cannot be read; {_AGAIN}"
    if missing := [name for name in listed if not (folder / name).is_file()]:
        count = f"{len(missing)} of its {len(listed)}"
        return f"it lacks {count} files with weights, for example {shortened(missing[0])}; {_AGAIN}"
    if not found:
        return _without_safetensors(folder)
    if not listed and folder / SINGLE not in found:
        return f"it has {len(found)} files with weights but no {INDEX}, which lists them; {_AGAIN}"
    return next((fault for path in found if (fault := _broken(path))), "")


def _without_safetensors(folder: Path) -> str:
    unsafe = next((path.name for each in _UNSAFE for path in sorted(folder.glob(each))), None)
    if unsafe is None:
        return f"it has no {SINGLE}; {_AGAIN}"
    return (
        f"its weights are in {shortened(unsafe)} only, and reading that could run code; save them as safetensors "
        "(model.save_pretrained in transformers does), or take a checkpoint that has them"
    )


def _broken(path: Path) -> str:
    try:
        with safe_open(path, "pt") as file:
            file.keys()
    except (SafetensorError, OSError) as error:
        return f"{shortened(path.name)} is broken ({first_line(error)}); {_AGAIN}"
    return ""


def _listed(index: Path) -> list[str] | None:
    """The files that an index of weights lists; empty without an index, None if it cannot be read."""
    if not index.is_file():
        return []
    try:
        files = json.loads(index.read_bytes())["weight_map"].values()
        return sorted(set(map(str, files)))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
