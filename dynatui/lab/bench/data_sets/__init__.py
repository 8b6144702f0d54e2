"""Loading of the benchmark's prompts from a data folder or the Hugging Face hub. It does not need models.

`catalogue` names the data sets, their files and the rules that make prompts of their rows; `sources` reads files;
`prompts` loads the prompts.
"""
