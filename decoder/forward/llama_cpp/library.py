"""The part of llama.cpp's C API that this program uses. Structs have the fields of `llama.h` of one pinned release, in
the same order; other releases are refused, since their structs may have other fields.
"""

import ctypes as c
import functools
from collections import deque
from collections.abc import Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from decoder.errors import ConfigError, ModelError

PACKAGE, RELEASE = "xllamacpp", "2026.10.11549"
"""Build 11549 of llama.cpp."""
FLOAT32, FLOAT16 = 0, 1
"""ggml's numbers for these dtypes."""
NO_FLASH_ATTENTION = 0
ERROR_LEVEL = 4

IntPointer = c.POINTER(c.c_int32)
LogCallback = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)


class ModelParams(c.Structure):
    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("devices", c.c_void_p),
        ("tensor_buft_overrides", c.c_void_p),
        ("n_gpu_layers", c.c_int32),
        ("split_mode", c.c_int),
        ("load_mode", c.c_int),
        ("lazy_mode", c.c_int),
        ("main_gpu", c.c_int32),
        ("tensor_split", c.c_void_p),
        ("progress_callback", c.c_void_p),
        ("progress_callback_user_data", c.c_void_p),
        ("kv_overrides", c.c_void_p),
        ("vocab_only", c.c_bool),
        ("check_tensors", c.c_bool),
        ("use_extra_bufts", c.c_bool),
        ("no_host", c.c_bool),
        ("no_alloc", c.c_bool),
        ("load_mtp", c.c_bool),
    ]


class ContextParams(c.Structure):
    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("n_ctx", c.c_uint32),
        ("n_batch", c.c_uint32),
        ("n_ubatch", c.c_uint32),
        ("n_seq_max", c.c_uint32),
        ("n_rs_seq", c.c_uint32),
        ("n_outputs_max", c.c_uint32),
        ("n_outputs_max_per_seq", c.c_uint32),
        ("n_threads", c.c_int32),
        ("n_threads_batch", c.c_int32),
        ("ctx_type", c.c_int),
        ("rope_scaling_type", c.c_int),
        ("pooling_type", c.c_int),
        ("attention_type", c.c_int),
        ("flash_attn_type", c.c_int),
        ("rope_freq_base", c.c_float),
        ("rope_freq_scale", c.c_float),
        ("yarn_ext_factor", c.c_float),
        ("yarn_attn_factor", c.c_float),
        ("yarn_beta_fast", c.c_float),
        ("yarn_beta_slow", c.c_float),
        ("yarn_orig_ctx", c.c_uint32),
        ("defrag_thold", c.c_float),
        ("cb_eval", c.c_void_p),
        ("cb_eval_user_data", c.c_void_p),
        ("type_k", c.c_int),
        ("type_v", c.c_int),
        ("abort_callback", c.c_void_p),
        ("abort_callback_data", c.c_void_p),
        # Only the build of llama.cpp that xllamacpp ships has this pointer; llama.cpp's own header lacks it.
        ("reserved", c.c_void_p),
        ("embeddings", c.c_bool),
        ("offload_kqv", c.c_bool),
        ("no_perf", c.c_bool),
        ("op_offload", c.c_bool),
        ("swa_full", c.c_bool),
        ("kv_unified", c.c_bool),
        ("samplers", c.c_void_p),
        ("n_samplers", c.c_size_t),
        ("ctx_other", c.c_void_p),
    ]


class Batch(c.Structure):
    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("n_tokens", c.c_int32),
        ("token", IntPointer),
        ("embd", c.c_void_p),
        ("pos", IntPointer),
        ("n_seq_id", IntPointer),
        ("seq_id", c.POINTER(IntPointer)),
        ("logits", c.POINTER(c.c_int8)),
    ]


_POINTER, _TEXT = c.c_void_p, c.c_char_p
FUNCTIONS: Mapping[str, tuple[Any, Sequence[Any]]] = {
    "llama_backend_init": (None, ()),
    "llama_log_set": (None, (LogCallback, _POINTER)),
    "llama_supports_gpu_offload": (c.c_bool, ()),
    "llama_model_default_params": (ModelParams, ()),
    "llama_context_default_params": (ContextParams, ()),
    "llama_model_load_from_file": (_POINTER, (_TEXT, ModelParams)),
    "llama_model_free": (None, (_POINTER,)),
    "llama_model_get_vocab": (_POINTER, (_POINTER,)),
    "llama_model_has_encoder": (c.c_bool, (_POINTER,)),
    "llama_model_is_recurrent": (c.c_bool, (_POINTER,)),
    "llama_model_is_hybrid": (c.c_bool, (_POINTER,)),
    "llama_model_is_diffusion": (c.c_bool, (_POINTER,)),
    "llama_init_from_model": (_POINTER, (_POINTER, ContextParams)),
    "llama_free": (None, (_POINTER,)),
    "llama_set_n_threads": (None, (_POINTER, c.c_int32, c.c_int32)),
    "llama_n_ctx": (c.c_uint32, (_POINTER,)),
    "llama_n_batch": (c.c_uint32, (_POINTER,)),
    "llama_n_ubatch": (c.c_uint32, (_POINTER,)),
    "llama_n_seq_max": (c.c_uint32, (_POINTER,)),
    "llama_get_memory": (_POINTER, (_POINTER,)),
    "llama_memory_clear": (None, (_POINTER, c.c_bool)),
    "llama_memory_seq_rm": (c.c_bool, (_POINTER, c.c_int32, c.c_int32, c.c_int32)),
    "llama_memory_seq_cp": (None, (_POINTER, c.c_int32, c.c_int32, c.c_int32, c.c_int32)),
    "llama_memory_seq_keep": (None, (_POINTER, c.c_int32)),
    "llama_decode": (c.c_int32, (_POINTER, Batch)),
    "llama_get_logits": (c.POINTER(c.c_float), (_POINTER,)),
    "llama_state_get_size": (c.c_size_t, (_POINTER,)),
    "llama_state_get_data": (c.c_size_t, (_POINTER, _POINTER, c.c_size_t)),
    "llama_state_set_data": (c.c_size_t, (_POINTER, _POINTER, c.c_size_t)),
    "llama_vocab_n_tokens": (c.c_int32, (_POINTER,)),
    "llama_vocab_is_eog": (c.c_bool, (_POINTER, c.c_int32)),
    "llama_tokenize": (c.c_int32, (_POINTER, _TEXT, c.c_int32, IntPointer, c.c_int32, c.c_bool, c.c_bool)),
    "llama_detokenize": (c.c_int32, (_POINTER, IntPointer, c.c_int32, _POINTER, c.c_int32, c.c_bool, c.c_bool)),
}
"""Result type and argument types of each function."""


INSTALL = "pip install 'dynatui[gguf]'"
ERRORS_KEPT = 4


class LlamaLibrary:
    """llama.cpp's functions as attributes without their prefix `llama_`, and its latest error messages."""

    def __init__(self, path: Path) -> None:
        """Raises ModelError if the library cannot be loaded or lacks a function."""
        self._errors: deque[str] = deque(maxlen=ERRORS_KEPT)
        self._log = LogCallback(self._note)
        try:
            loaded = c.CDLL(str(path))
            for name, (result, arguments) in FUNCTIONS.items():
                function = getattr(loaded, name)
                function.restype, function.argtypes = result, arguments
                setattr(self, name.removeprefix("llama_"), function)
        except (OSError, AttributeError) as error:
            raise _unfit(str(error)) from error
        self.listen()
        self.backend_init()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"llama_{name} is not among the functions that this program uses")

    def listen(self) -> None:
        """Receives llama.cpp's log messages; a process has only one receiver."""
        self.log_set(self._log, None)

    def last_error(self) -> str:
        """The error messages since the last call, in one line; at most the latest `ERRORS_KEPT`."""
        messages, self._errors = list(self._errors), deque(maxlen=ERRORS_KEPT)
        return "; ".join(messages)

    def _note(self, level: int, text: bytes, _data: object) -> None:
        line = text.decode("utf-8", "replace").strip()
        if level == ERROR_LEVEL and line:
            self._errors.append(line.partition(": ")[2] or line)


@functools.cache
def library() -> LlamaLibrary:
    """Raises ConfigError if the pinned release is not installed, ModelError if its library file cannot be used."""
    require_package()
    spec = find_spec(PACKAGE)
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    paths = [path for folder in folders for path in sorted(folder.glob(f"{PACKAGE}*.so"))]
    if not paths:
        raise _unfit("the package has no library file")
    return LlamaLibrary(paths[0])


def require_package() -> None:
    """Raises ConfigError unless the pinned release of the package is installed."""
    try:
        installed = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        raise ConfigError(f"GGUF files need {PACKAGE}, which is not installed; {INSTALL}") from None
    if installed != RELEASE:
        raise ConfigError(f"GGUF files need {PACKAGE} {RELEASE}, but {installed} is installed; {INSTALL}")


def _unfit(why: str) -> ModelError:
    return ModelError(f"the llama.cpp library of {PACKAGE} {RELEASE} cannot be used: {why}; reinstall it: {INSTALL}")
