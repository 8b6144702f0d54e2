"""Forward passes by llama.cpp through its C API; knows neither checkpoints nor tokenizers."""
