"""The DynaTree paper's experiments, repeated with any pair of models. A lane is a decoding method with its parameters.

In the order of the data flow: `experiments` plans lanes, prompts and text lengths; `job` lets the lanes decode in turns
and makes `records` of the results; `report` has a data frame (one row per text) and means over prompts. `tables`,
`figures` and `claims` compare the report with the paper's numbers (`published`), and `write` makes files of them.
"""
