"""Tiny random models of every causal language model in transformers: default configurations with small sizes."""

from collections.abc import Mapping
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from tests.decoder import any_family, recurrent_families
from tests.decoder.any_family import CONTEXT, LATENT, SHAPE, VOCABULARY, WINDOW

FAMILIES = tuple(sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
LAYERS = 3
LARGEST = 4_000_000
"""Largest number of parameters of a tiny model; a larger model has a size field that this module does not know."""

FACTORS = ((1.0, 1.0), (0.5, 1.0), (0.25, 4.0))
"""Factors of the module's inner weights and of its embeddings; with unsuitable factors, a family repeats one token."""

_NAMES: Mapping[int, str] = {
    VOCABULARY: "vocab_size unpadded_vocab_size vocab_size_per_layer_input pronunciation_vocab_size shape_vocab_size",
    CONTEXT: "max_position_embeddings n_positions n_ctx max_seq_len seq_length context_length model_max_length",
    WINDOW: "sliding_window sliding_window_size attention_chunk_size window_size attention_window_size head_dim "
    "dim_head kv_channels attention_head_size d_head swa_head_dim linear_key_head_dim linear_value_head_dim "
    "linear_head_dim mamba_d_state ssm_state_size state_size rotary_dim query_pre_attn_scalar "
    "hidden_size_per_layer_input d_rel o_lora_rank floor_scale index_block_size",
    2 * WINDOW: "local_attention moe_intermediate_size shared_expert_intermediate_size shared_intermediate_size "
    "shared_experts_intermediate_size moe_shared_expert_intermediate_size expert_ffn_hidden_size mamba_d_head "
    "mamba_head_dim mamba_headdim index_head_dim index_n_heads indexer_head_dim attention_head_dim "
    "router_hidden_size rel_extent pronunciation_embed_dim shape_embed_dim",
    32: "hidden_size d_model n_embd emb_dim embedding_dim embedding_size word_embed_proj_dim dim_model_base "
    "lru_width rnn_hidden_size input_embedding_size output_embedding_size attention_hidden_size adapter_in_dim "
    "adapter_out_dim adapter_input_size",
    48: "intermediate_size ffn_dim dff feed_forward_size d_inner dim_ff ffn_hidden_size intermediate_size_mlp "
    "decoder_ffn_dim encoder_ffn_dim dense_intermediate_size",
    64: "mamba_d_ssm",
    4: "num_attention_heads n_head n_heads num_heads attention_heads decoder_attention_heads encoder_attention_heads "
    "num_encoder_attention_heads num_decoder_attention_heads swa_num_attention_heads mamba_n_heads mamba_num_heads "
    "linear_num_value_heads linear_num_heads num_attention_heads_per_layer num_experts num_local_experts "
    "n_routed_experts moe_num_experts mamba_chunk_size chunk_size block_size mamba_dt_rank time_step_rank "
    "laurel_rank gated_norm_rank indexer_n_heads",
    LAYERS: "num_hidden_layers n_layer n_layers num_layers num_blocks decoder_layers num_decoder_layers",
    2: "eos_token_id num_key_value_heads num_kv_heads swa_num_key_value_heads linear_num_key_heads num_experts_per_tok "
    "num_experts_per_token moe_top_k moe_topk moe_k index_topk_blocks encoder_layers num_encoder_layers "
    "zero_expert_num o_groups altup_num_inputs",
    1: "n_group topk_group num_expert_group n_groups mamba_n_groups n_shared_experts num_shared_experts "
    "first_k_dense_replace num_dense_layers bos_token_id max_window_layers index_local_blocks",
    6: "index_topk",
    0: "pad_token_id num_nextn_predict_layers num_kv_shared_layers",
}  # fmt: skip
SIZES: Mapping[str, int] = {name: size for size, names in _NAMES.items() for name in names.split()}
"""Values of the size fields of transformers' configurations, by field name."""
SET_IF_NONE = {
    "num_key_value_heads", "sliding_window", "pad_token_id", "bos_token_id", "eos_token_id", "n_layer", "rotary_dim",
}  # fmt: skip
"""Fields that are replaced even if None; in other fields, None turns off a part of the model."""

_ROPE: dict[str, Any] = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
_ENCODER: dict[str, Any] = {"is_decoder": True}
_INKLING: dict[str, Any] = {
    "layer_types": ["hybrid_sliding", "hybrid", "hybrid_sliding"], "log_scaling_n_floor": 8,
    "swa_num_key_value_heads": 4, "swa_head_dim": 12,
}  # fmt: skip
OWN: Mapping[str, dict[str, Any]] = {
    **dict.fromkeys(
        ("bert", "bert-generation", "camembert", "data2vec-text", "electra", "ernie", "megatron-bert", "rembert",
         "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "xlm-roberta", "xlm-roberta-xl"), _ENCODER),
    "apertus": _ROPE, "cwm": _ROPE,
    "hunyuan_v1_dense": {"head_dim": WINDOW}, "hunyuan_v1_moe": {"head_dim": WINDOW},
    "big_bird": _ENCODER | {"attention_type": "original_full"},
    "xmod": _ENCODER | {"default_language": "en_XX"},
    "reformer": _ENCODER | {
        "axial_pos_shape": [16, 10], "axial_pos_embds_dim": [16, 16], "attn_layers": ["local", "lsh", "local"],
        "local_attn_chunk_length": 8, "lsh_attn_chunk_length": 8, "num_buckets": 4,
    },
    "gpt_neo": {"attention_types": [[["global", "local", "global"], 1]]},
    "recurrent_gemma": {"block_types": ["recurrent", "recurrent", "attention"]},
    "xlm": {"causal": True},
    "dbrx": {"ffn_config": {"hidden_size": 32, "ffn_hidden_size": 16, "moe_num_experts": 4, "moe_top_k": 2},
             "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0}},
    "hrm_text": {"num_layers_per_stack": None, "num_hidden_layers": 2, "prefix_lm": False},
    "dots3_note_text": {
        "layer_types": ["indexed_attention", "sliding_attention", "indexed_attention"], "head_dim": 12,
        "per_layer_config": {
            1: {"num_attention_heads": 2, "num_key_value_heads": 2, "kv_lora_rank": 8, "qk_nope_head_dim": 8}}},
    "ministral3": {"rope_parameters": {**_ROPE["rope_parameters"], "llama_4_scaling_beta": 0.1,
                                       "original_max_position_embeddings": 16}},
    "cohere_compass_text": {"layer_types": ["full_attention"] * 3,
                            "rope_parameters": {"full_attention": _ROPE["rope_parameters"]}},
    "qwen4_exp_text": {
        "layer_types": ["linear_attention", "linear_attention", "indexed_attention"], "hc_lowrank": 8,
        "ple_embed_dim": 16, "ngram_vocab_size_base": 200, "make_ngram_vocab_size_divisible_by": 8,
        "split_ngram_parts": 1, "heads_per_ngram": 2, "indexer_n_heads": 4, "indexer_head_dim": 16,
        "indexer_kv_heads": 1, "indexer_budget": 8, "indexer_compress_ratio": 2, "ple_layer_ids": [1]},
    "inkling_text": _INKLING, "inkling2_text": _INKLING | {"n_layers_per_attn_res_block": 2},
    "inkling2_loop_text": _INKLING | {
        "n_layers_per_attn_res_block": 1, "loop_layer_index_start": 1, "loop_layer_index_end": 3, "loop_num_passes": 2},
    "minimax_m3_vl_text": {"layer_types": ["full_attention", "minimax_m3_sparse", "full_attention"],
                           "mlp_layer_types": ["dense", "sparse", "sparse"], "index_n_heads": 2},
    "xlstm": {"hidden_size": 64, "embedding_dim": 64, "qk_dim_factor": 1.0, "autocast_kernel_dtype": "float32"},
    "granite_swa": {"layer_rope_theta": [1e4, 5e3, 1e4]}, "granitemoe_swa": {"layer_rope_theta": [1e4, 5e3, 1e4]},
    "mllama": {
        "text_config": SHAPE | {"cross_attention_layers": [], "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}},
    "phi4_multimodal": {"original_max_position_embeddings": CONTEXT},
    "dory": {"num_hidden_layers": 4, "n_input_layers": 1, "n_output_layers": 1,
             "layer_types": ["sliding_attention", "full_attention"] * 2},
}  # fmt: skip
"""Fields that only one family has, or whose sizes depend on each other."""


def tiny_config(family: str) -> Any:
    """A tiny configuration of the family; raises the family's own error if it does not accept these sizes."""
    if family in any_family.FAMILIES:
        return any_family.config_of(family)
    if family in recurrent_families.FAMILIES:
        return recurrent_families.config_of(family)
    kind = CONFIG_MAPPING[family]
    return kind(**shrunk(kind()) | OWN.get(family, {}))


def shrunk(config: PreTrainedConfig) -> dict[str, Any]:
    """Small values for the fields of a configuration and of its nested configurations."""
    given: dict[str, Any] = {}
    fields = config.to_dict()
    depths = {fields.get(name) for name, size in SIZES.items() if size == LAYERS} - {None}
    for name, value in fields.items():
        inner = getattr(config, name) if name in config.sub_configs else None
        if isinstance(inner, PreTrainedConfig):
            given[name] = {"model_type": inner.model_type, **shrunk(inner), **OWN.get(inner.model_type, {})}
        elif name in SIZES and not isinstance(value, bool) and (value is not None or name in SET_IF_NONE):
            per_layer = isinstance(value, list) and name != "eos_token_id"
            given[name] = [SIZES[name]] * LAYERS if per_layer else SIZES[name]
        elif isinstance(value, list) and len(value) in depths:
            given[name] = (list(dict.fromkeys(value)) * LAYERS)[:LAYERS]
    if "use_sliding_window" in fields:
        given.pop("layer_types", None)
        given["use_sliding_window"] = True
    if "kv_lora_rank" in fields:
        given |= LATENT
    return given | {"tie_word_embeddings": False}


def tiny_module(family: str, config: Any, factors: tuple[float, float]) -> Any:
    """A random module in evaluation mode; see `FACTORS`.

    Raises:
        ValueError: The module has more than `LARGEST` parameters.
    """
    with torch.device("meta"):
        count = sum(weight.numel() for weight in AutoModelForCausalLM.from_config(config).parameters())
    if count > LARGEST:
        raise ValueError(f"it has {count} parameters in the smallest form that the survey knows")
    module = any_family.built(config)
    inner, embedding = factors[0] * (0.6 if family in recurrent_families.SENSITIVE else 1.0), factors[1]
    first, last = module.get_input_embeddings().weight, module.get_output_embeddings().weight
    with torch.no_grad():
        for weight in module.parameters():
            if weight.dim() > 1 and weight is not last:
                weight.mul_(embedding if weight is first else inner)
    return module


def tiny_kin(family: str, config: Any, factors: tuple[float, float]) -> Any:
    """The same module with a little noise in its weights, as a draft that is often right."""
    module, generator = tiny_module(family, config, factors), torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in module.parameters():
            if weight.dim() > 1:
                weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.005 * float(weight.std()))
    return module
