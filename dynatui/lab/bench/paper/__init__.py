"""The DynaTree paper's experiments, repeated with any pair of models: request, measurement and report. A lane is a
decoding method with its parameters.

Data flows one way. `experiments` makes the `request` (experiments, lanes, texts) from the `lanes`. `job` lets the
`contenders` decode in turns, `blocks` turns the results into `records`, and `summary` computes the `report` from the
records (means with intervals). `tables`, `figures` and `claims` show the report beside the paper's numbers
(`published`).
"""
