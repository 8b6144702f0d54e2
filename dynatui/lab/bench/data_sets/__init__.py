"""Loading of the benchmark's prompts from a data folder or the Hugging Face hub. It does not need models.

`prompts` names the data sets, has the rules that make prompts of their rows, and loads them; `sources` reads files.
"""
