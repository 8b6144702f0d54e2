"""The part of llama.cpp's C API that this program uses: structs and functions of one pinned release, and the library,
which is refused if it is of another release.

Fields and their order are those of `llama.h` of that release. A struct of another release may have other fields, so the
library is checked against `MODEL_DEFAULTS` and `CONTEXT_DEFAULTS` before it is used.
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
"""Package that contains the library, and the package's release that has these layouts (build 11549 of llama.cpp)."""
VERSION = b"0.6.0-dev"
"""Version that the library of this release reports."""
FLOAT32, FLOAT16 = 0, 1
"""ggml's numbers for the types float32 and float16."""
NO_FLASH_ATTENTION = 0
ERROR_LEVEL = 4
"""Level of error messages in llama.cpp's log."""

IntPointer = c.POINTER(c.c_int32)
LogCallback = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)
ProgressCallback = c.CFUNCTYPE(c.c_bool, c.c_float, c.c_void_p)


class ModelParams(c.Structure):
    """`llama_model_params`."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("devices", c.c_void_p),
        ("tensor_buft_overrides", c.c_void_p),
        ("n_gpu_layers", c.c_int32),
        ("split_mode", c.c_int),
        ("load_mode", c.c_int),
        ("lazy_mode", c.c_int),
        ("main_gpu", c.c_int32),
        ("tensor_split", c.c_void_p),
        ("progress_callback", ProgressCallback),
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
    """`llama_context_params`."""

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
    """`llama_batch`."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("n_tokens", c.c_int32),
        ("token", IntPointer),
        ("embd", c.c_void_p),
        ("pos", IntPointer),
        ("n_seq_id", IntPointer),
        ("seq_id", c.POINTER(IntPointer)),
        ("logits", c.POINTER(c.c_int8)),
    ]


MODEL_DEFAULTS: Mapping[str, object] = {
    "devices": None,
    "tensor_buft_overrides": None,
    "n_gpu_layers": -1,
    "split_mode": 1,
    "load_mode": -1,
    "lazy_mode": 1,
    "main_gpu": 0,
    "tensor_split": None,
    "kv_overrides": None,
    "vocab_only": False,
    "check_tensors": False,
    "use_extra_bufts": True,
    "no_host": False,
    "no_alloc": False,
    "load_mtp": False,
}
"""Default values of model parameters in the pinned release."""
CONTEXT_DEFAULTS: Mapping[str, object] = {
    "n_ctx": 512,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_seq_max": 1,
    "n_rs_seq": 0,
    "n_outputs_max": 0,
    "n_outputs_max_per_seq": 1,
    "n_threads": 4,
    "n_threads_batch": 4,
    "ctx_type": 0,
    "rope_scaling_type": -1,
    "pooling_type": -1,
    "attention_type": -1,
    "flash_attn_type": -1,
    "rope_freq_base": 0.0,
    "yarn_ext_factor": -1.0,
    "yarn_beta_slow": -1.0,
    "yarn_orig_ctx": 0,
    "defrag_thold": -1.0,
    "cb_eval": None,
    "type_k": FLOAT16,
    "type_v": FLOAT16,
    "abort_callback": None,
    "abort_callback_data": None,
    "reserved": None,
    "embeddings": False,
    "offload_kqv": True,
    "no_perf": True,
    "op_offload": True,
    "swa_full": True,
    "kv_unified": False,
    "samplers": None,
    "n_samplers": 0,
    "ctx_other": None,
}
"""Default values of context parameters in the pinned release."""

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
"""Result type and argument types of each function that this program calls."""


INSTALL = "pip install 'dynatui[gguf]'"
ERRORS_KEPT = 4


class Library:
    """llama.cpp's functions as attributes without their prefix `llama_`, and its latest error messages."""

    def __init__(self, path: Path) -> None:
        """Loads the library at a path and checks its version and its default parameters.

        Raises:
            ModelError: The library cannot be loaded, lacks a function, or has other layouts.
        """
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
        """Makes this object the receiver of llama.cpp's log messages; a process has only one receiver."""
        self.log_set(self._log, None)

    def last_error(self) -> str:
        """Returns the latest error messages of llama.cpp in one line, and forgets them."""
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
    """Fields of a struct that do not have the expected values: the actual values, by field name."""
    return {name: value for name, wanted in expected.items() if (value := getattr(values, name)) != wanted}


@functools.cache
def library() -> Library:
    """The library of the extra `gguf`, loaded on first use.

    Raises:
        ConfigError: The package is not installed, or another release of it is installed.
        ModelError: The library cannot be used.
    """
    require_package()
    spec = find_spec(PACKAGE)
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    paths = [path for folder in folders for path in sorted(folder.glob(f"{PACKAGE}*.so"))]
    if not paths:
        raise _unfit("the package has no library file")
    return Library(paths[0])


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
