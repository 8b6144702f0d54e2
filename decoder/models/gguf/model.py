"""Loads a GGUF file as a model of the engine; llama.cpp computes its passes."""

from pathlib import Path

import torch

from decoder.errors import PairError
from decoder.forward.families.architecture import Traits
from decoder.forward.language_model import LanguageModel
from decoder.forward.llama_cpp.context import Model
from decoder.forward.llama_cpp.forward import LlamaForward
from decoder.models.gguf.file import gguf_file
from decoder.models.gguf.limits import LIMIT, check_gguf
from decoder.models.gguf.tokenizer import GgufTokenizer

COMPUTED_BY = "llama.cpp"


def load_gguf(name: str, device: torch.device, gpu_layers: int | None = None) -> LanguageModel:
    """Raises ConfigError for a file that is broken or cannot be run, and PairError if it is no plain decoder."""
    file = gguf_file(name)
    shown = Path(name).name
    check_gguf(shown, file)
    model = Model(file.path, gpu_layers=gpu_layers)
    _require_decoder(shown, model)
    layers = file.size("block_count") or 0
    half = not file.in_float32
    traits = Traits(
        layers=layers,
        width=model.width,
        context=file.size("context_length") or 0,
        device=device,
        # The probe and the check for near ties allow errors as large as those of this dtype. The errors of products
        # with quantised weights are as large as those of float16.
        dtype=torch.float16 if half else torch.float32,
        eos=GgufTokenizer(file).ends(),
        skeleton=_no_module,
        source=None,
    )
    forward = LlamaForward(model, layers, device, half=half)
    return LanguageModel.of_forward(
        traits,
        shown,
        forward,
        computed_by=COMPUTED_BY,
        precision=f"GGUF {file.quantisation}",
        keeps_states=model.keeps_states,
    )


def _no_module() -> None:
    raise PairError("a GGUF file has no Hugging Face module; name a folder with safetensors weights")


def _require_decoder(name: str, model: Model) -> None:
    """Refuses encoder-decoders and diffusion models, which only the loaded library can recognise."""
    library = model.library
    for wrong, what in (
        (library.model_has_encoder, "an encoder-decoder"),
        (library.model_is_diffusion, "a diffusion model"),
    ):
        if wrong(model.handle):
            raise PairError(f"{name} is {what}, which does not generate text one token at a time; {LIMIT}")
