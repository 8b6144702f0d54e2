"""The part of llama.cpp's C API that this program uses. Fields and their order are those of `llama.h` of one pinned
release; the library is checked against its default parameters before it is used, since another release may have other
fields.
"""

import ctypes
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
VERSION = b"0.6.0-dev"
FLOAT32, FLOAT16 = 0, 1
"""ggml's numbers for these dtypes."""
NO_FLASH_ATTENTION = 0
ERROR_LEVEL = 4

IntPointer = c.POINTER(c.c_int32)
LogCallback = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)
ProgressCallback = c.CFUNCTYPE(c.c_bool, c.c_float, c.c_void_p)


MODEL_FIELDS: Sequence[tuple[Any, ...]] = (
    ("devices", c.c_void_p, None),
    ("tensor_buft_overrides", c.c_void_p, None),
    ("n_gpu_layers", c.c_int32, -1),
    ("split_mode", c.c_int, 1),
    ("load_mode", c.c_int, -1),
    ("lazy_mode", c.c_int, 1),
    ("main_gpu", c.c_int32, 0),
    ("tensor_split", c.c_void_p, None),
    ("progress_callback", ProgressCallback),
    ("progress_callback_user_data", c.c_void_p),
    ("kv_overrides", c.c_void_p, None),
    ("vocab_only", c.c_bool, False),
    ("check_tensors", c.c_bool, False),
    ("use_extra_bufts", c.c_bool, True),
    ("no_host", c.c_bool, False),
    ("no_alloc", c.c_bool, False),
    ("load_mtp", c.c_bool, False),
)
"""Name and type of each field, and its default value in the pinned release if this value is checked."""
CONTEXT_FIELDS: Sequence[tuple[Any, ...]] = (
    ("n_ctx", c.c_uint32, 512),
    ("n_batch", c.c_uint32, 2048),
    ("n_ubatch", c.c_uint32, 512),
    ("n_seq_max", c.c_uint32, 1),
    ("n_rs_seq", c.c_uint32, 0),
    ("n_outputs_max", c.c_uint32, 0),
    ("n_outputs_max_per_seq", c.c_uint32, 1),
    ("n_threads", c.c_int32, 4),
    ("n_threads_batch", c.c_int32, 4),
    ("ctx_type", c.c_int, 0),
    ("rope_scaling_type", c.c_int, -1),
    ("pooling_type", c.c_int, -1),
    ("attention_type", c.c_int, -1),
    ("flash_attn_type", c.c_int, -1),
    ("rope_freq_base", c.c_float, 0.0),
    ("rope_freq_scale", c.c_float),
    ("yarn_ext_factor", c.c_float, -1.0),
    ("yarn_attn_factor", c.c_float),
    ("yarn_beta_fast", c.c_float),
    ("yarn_beta_slow", c.c_float, -1.0),
    ("yarn_orig_ctx", c.c_uint32, 0),
    ("defrag_thold", c.c_float, -1.0),
    ("cb_eval", c.c_void_p, None),
    ("cb_eval_user_data", c.c_void_p),
    ("type_k", c.c_int, FLOAT16),
    ("type_v", c.c_int, FLOAT16),
    ("abort_callback", c.c_void_p, None),
    ("abort_callback_data", c.c_void_p, None),
    # Only the build of llama.cpp that xllamacpp ships has this pointer; llama.cpp's own header lacks it.
    ("reserved", c.c_void_p, None),
    ("embeddings", c.c_bool, False),
    ("offload_kqv", c.c_bool, True),
    ("no_perf", c.c_bool, True),
    ("op_offload", c.c_bool, True),
    ("swa_full", c.c_bool, True),
    ("kv_unified", c.c_bool, False),
    ("samplers", c.c_void_p, None),
    ("n_samplers", c.c_size_t, 0),
    ("ctx_other", c.c_void_p, None),
)
MODEL_DEFAULTS, CONTEXT_DEFAULTS = (
    {name: default[0] for name, _, *default in fields if default} for fields in (MODEL_FIELDS, CONTEXT_FIELDS)
)


class ModelParams(c.Structure):
    _fields_ = [field[:2] for field in MODEL_FIELDS]  # noqa: RUF012 - read by ctypes


class ContextParams(c.Structure):
    _fields_ = [field[:2] for field in CONTEXT_FIELDS]  # noqa: RUF012 - read by ctypes


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
    "llama_version": (_TEXT, ()),
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
        """Raises ModelError if the library cannot be loaded, lacks a function, or has unexpected struct layouts."""
        self._errors: deque[str] = deque(maxlen=ERRORS_KEPT)
        self._log = LogCallback(self._note)
        try:
            loaded = ctypes.CDLL(str(path))
            for name, (result, arguments) in FUNCTIONS.items():
                function = getattr(loaded, name)
                function.restype, function.argtypes = result, arguments
                setattr(self, name.removeprefix("llama_"), function)
        except (OSError, AttributeError) as error:
            raise _unfit(str(error)) from error
        self.listen()
        self.backend_init()
        self._check()

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

    def _check(self) -> None:
        if (version := self.version()) != VERSION:
            raise _unfit(f"it is version {version.decode('ascii', 'replace')}, not {VERSION.decode()}")
        for values, expected in (
            (self.model_default_params(), MODEL_DEFAULTS),
            (self.context_default_params(), CONTEXT_DEFAULTS),
        ):
            for name, value in differing(values, expected).items():
                raise _unfit(f"its default of {name} is read as {value!r}, not as {expected[name]!r}")


def differing(values: ctypes.Structure, expected: Mapping[str, object]) -> dict[str, object]:
    """Actual values of the fields that differ from their expected values."""
    return {name: value for name, wanted in expected.items() if (value := getattr(values, name)) != wanted}


@functools.cache
def library() -> LlamaLibrary:
    """Raises ConfigError if the pinned release of the package is not installed, ModelError if it cannot be used."""
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
