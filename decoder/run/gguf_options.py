"""Checks the options of runs in which a model is a GGUF file; each error message is one sentence."""

from collections.abc import Mapping

from decoder.errors import require
from decoder.forward.llama_cpp.library import library
from decoder.methods import chosen
from decoder.models.gguf_file import is_gguf
from decoder.run.config import RunConfig


def gguf_roles(names: Mapping[str, str]) -> set[str]:
    return {role for role, name in names.items() if is_gguf(name)}


def require_weights_of_torch(
    names: Mapping[str, str], run: RunConfig, *, exact: bool, compiled: bool, head: bool
) -> None:
    """Refuses options and methods that need the weights or layers of a GGUF file in torch."""
    roles = gguf_roles(names)
    if not roles:
        return
    whole = ", ".join(method.name for method in chosen(run.methods) if method.whole_target)
    why = "GGUF files run in llama.cpp"
    require(not whole, f"{whole} needs the models in torch, but {why}; leave {whole} out of --methods", "methods")
    require(not compiled, f"--compile is for models in torch, but {why}; leave --compile out", "compile")
    if "target" in roles:
        require(not exact, f"--exact is for models in torch, but {why}; leave --exact out", "exact")
        require(not head, f"a drafting head reads the target's layers in torch, but {why}; give a draft model")


def require_dtypes_of_torch(names: Mapping[str, str], *, device: str, dtype: str, draft_dtype: str) -> None:
    """Refuses a dtype for a GGUF file, and a device other than the CPU for a GGUF target."""
    roles, remedy = gguf_roles(names), "whose weights keep their own format; leave the option out"
    if "target" in roles:
        require(dtype == "auto", f"--dtype has no effect on the target, a GGUF file {remedy}", "dtype")
        require(
            device in ("auto", "cpu"),
            f"--device {device} has no effect on the target, a GGUF file; give --gpu-layers in its place",
            "device",
        )
    if "draft" in roles:
        require(draft_dtype == "auto", f"--draft-dtype has no effect on the draft, a GGUF file {remedy}", "draft_dtype")


def require_gpu_layers(names: Mapping[str, str], gpu_layers: int | None) -> None:
    """Refuses --gpu-layers without a GGUF file, or without a GPU that llama.cpp can use."""
    if gpu_layers is None:
        return
    require(
        bool(gguf_roles(names)),
        "--gpu-layers is for GGUF files, but no model is a GGUF file; leave --gpu-layers out, or give --device cuda",
        "gpu_layers",
    )
    require(gpu_layers >= 0, f"--gpu-layers is {gpu_layers}; give 0 or more", "gpu_layers")
    require(
        not gpu_layers or bool(library().supports_gpu_offload()),
        f"--gpu-layers is {gpu_layers}, but the installed llama.cpp computes on the CPU alone; leave --gpu-layers out, "
        "or install a wheel of xllamacpp for this GPU",
        "gpu_layers",
    )
