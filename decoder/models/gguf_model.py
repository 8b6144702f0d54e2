"""Loads a GGUF file as a language model; llama.cpp computes the passes and tokenizes."""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from decoder.errors import PairError
from decoder.forward.families.architecture import Traits
from decoder.forward.language_model import LanguageModel
from decoder.forward.llama_cpp.context import LlamaModel
from decoder.forward.llama_cpp.forward import LlamaForward
from decoder.forward.llama_cpp.library import IntPointer
from decoder.models.gguf_file import LIMIT, GgufFile, check_gguf, gguf_file
from decoder.models.tokenizer import Encoded
from decoder.system.libraries import imported

UNUSED = 5
"""Type of tokens that only fill the vocabulary up to the width of the logits."""
BYTES_OF_TOKEN = 16
"""Initial guess of the length of a token's text, in bytes."""


class GgufTokenizer:
    def __init__(self, file: GgufFile) -> None:
        """Loads the vocabulary of a GGUF file, but no weights."""
        self._file = file
        self._model = LlamaModel(file.path, words_only=True)
        self._vocabulary, self._library = self._model.vocabulary, self._model.library
        template = file.values.get("tokenizer.chat_template")
        self.chat_template: Any = template if isinstance(template, str) else None

    def __call__(self, text: str, *, add_special_tokens: bool = True, verbose: bool = True) -> Encoded:
        """Special tokens that are written in the text are recognised."""
        del verbose
        encoded = text.encode("utf-8", "replace")
        room = len(encoded) + 2
        while True:
            ids = np.zeros(room, np.int32)
            count = self._library.tokenize(
                self._vocabulary, encoded, len(encoded), ids.ctypes.data_as(IntPointer), room, add_special_tokens, True
            )
            if count >= 0:
                return Encoded(ids[:count].tolist())
            room = -count

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = False, **_settings: Any) -> str:  # noqa: FBT001, FBT002 - as transformers has it
        """Text of the tokens, with U+FFFD in place of bytes that form no complete character."""
        ids = np.array(token_ids, np.int32)
        room = BYTES_OF_TOKEN * len(ids) + 1
        while True:
            text = ctypes.create_string_buffer(room)
            count = self._library.detokenize(
                self._vocabulary, ids.ctypes.data_as(IntPointer), len(ids), text, room, False, not skip_special_tokens
            )
            if count >= 0:
                return text.raw[:count].decode("utf-8", "replace")
            room = -count

    def get_vocab(self) -> dict[str, int]:
        """Tokens and their ids, without tokens that only fill up the vocabulary."""
        kinds = self._file.values.get("tokenizer.ggml.token_type") or []
        unused = {number for number, kind in enumerate(kinds) if kind == UNUSED}
        return {text: number for number, text in enumerate(self._file.tokens) if number not in unused}

    def convert_tokens_to_ids(self, tokens: Sequence[str]) -> list[int | None]:
        vocabulary = self.get_vocab()
        return [vocabulary.get(token) for token in tokens]

    def ends(self) -> list[int]:
        return [token for token in range(self._model.width) if self._library.vocab_is_eog(self._vocabulary, token)]

    def apply_chat_template(self, messages: Sequence[Any], *, tokenize: bool, add_generation_prompt: bool) -> str:
        assert not tokenize, "the engine tokenizes by itself"  # noqa: S101 - a programmer's mistake
        render = imported("transformers.utils.chat_template_utils").render_jinja_template
        special = {f"{name}_token": self._special(name) for name in ("bos", "eos")}
        (text,), _ = render(
            conversations=[list(messages)],
            chat_template=self.chat_template,
            add_generation_prompt=add_generation_prompt,
            **special,
        )
        return str(text)

    def _special(self, name: str) -> str:
        number = self._file.values.get(f"tokenizer.ggml.{name}_token_id")
        return self._file.tokens[number] if isinstance(number, int) and 0 <= number < len(self._file.tokens) else ""


COMPUTED_BY = "llama.cpp"


def load_gguf(name: str, device: torch.device, gpu_layers: int | None = None) -> LanguageModel:
    """Raises ConfigError if a file is broken or cannot be run, and PairError if it is no decoder-only model."""
    file = gguf_file(name)
    shown = Path(name).name
    check_gguf(shown, file)
    model = LlamaModel(file.path, gpu_layers=gpu_layers)
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


def _require_decoder(name: str, model: LlamaModel) -> None:
    """Refuses encoder-decoders and diffusion models, which only the loaded library can recognise."""
    library = model.library
    for wrong, what in (
        (library.model_has_encoder, "an encoder-decoder"),
        (library.model_is_diffusion, "a diffusion model"),
    ):
        if wrong(model.handle):
            raise PairError(f"{name} is {what}, which does not generate text one token at a time; {LIMIT}")
