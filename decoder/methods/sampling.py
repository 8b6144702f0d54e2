"""Options of sampling, which apply to all methods."""

from decoder.methods.option import Option

OPTIONS = (
    Option("temperature", float, "T", "Temperature that tokens are sampled at, 0 to 2; 0: greedy."),
    Option("top_k", int, "N", "Sample of the N most probable tokens only; 0: of all."),
    Option("top_p", float, "P", "Sample of as few most probable tokens as together hold this probability; 1: of all."),
)
