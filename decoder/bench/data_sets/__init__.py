"""Where the benchmark's prompts come from: a folder of data, or the Hugging Face hub. Knows no models.

rules       how the rows of a data set become prompts
texts       files of text
parquet     files of tables, one column
spec_bench  the file of Spec-Bench, by task
hub         files of the hub, in its cache
quiet       keeps what other libraries print away
text_set    what a data set is to a benchmark
catalogue   the data sets by name, from all of these
"""
