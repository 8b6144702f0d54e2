"""The engines for which advice is written."""

from dynatui.servers.engines.engine import Engine
from dynatui.servers.engines.llama_cpp import LLAMA_CPP
from dynatui.servers.engines.sglang import SGLANG
from dynatui.servers.engines.tensorrt_llm import TENSORRT_LLM
from dynatui.servers.engines.transformers import TRANSFORMERS
from dynatui.servers.engines.vllm import VLLM

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (VLLM, SGLANG, LLAMA_CPP, TENSORRT_LLM, TRANSFORMERS)}
