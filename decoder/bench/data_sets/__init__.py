"""Sources of the benchmark's prompts: a folder of data, or the Hugging Face hub. Knows no models.

rules       conversion of a data set's rows into prompts
texts       text files
parquet     one column of parquet files
spec_bench  the file of Spec-Bench, by task
hub         files of the hub, in its cache
quiet       silences other libraries
text_set    prompts of a data set
catalogue   all data sets by name
"""
