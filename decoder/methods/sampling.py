"""Options of sampling, which apply to all methods."""

from decoder.methods.option import Option

OPTIONS = (
    Option("temperature", float, "T", "Sampling temperature, 0 to 2; 0: greedy."),
    Option("top_k", int, "N", "Sample only from the N most probable tokens; 0: from all."),
    Option(
        "top_p",
        float,
        "P",
        "Sample only from the smallest set of most probable tokens with a total probability of P or more; 1: from all.",
    ),
)
