"""Forward passes by llama.cpp through its C API; imports neither torch modules nor files of models."""
