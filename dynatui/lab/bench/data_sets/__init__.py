"""Loading of the benchmark's prompts from a data folder or the Hugging Face hub. This module does not depend on models.

rules       conversion of a data set's rows into prompts
texts       text files of a data folder
parquet     one column of parquet files
spec_bench  the questions file of Spec-Bench, grouped by task
hub         data files from the Hugging Face hub, kept in its local cache
quiet       suppression of other libraries' warnings and log lines
text_set    the loaded prompts of one data set
catalogue   all supported data sets by name
prompts     the first prompts of each requested data set
"""
