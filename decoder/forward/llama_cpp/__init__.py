"""Forward passes by llama.cpp through its C API; independent of checkpoints and tokenizers."""
