"""GGUF files: metadata, limits, tokenizer, and the model that llama.cpp runs."""
