"""The DynaTree paper's experiments, repeated with any pair of models: request, measurement and report. A lane is a
decoding method with its parameters.

Data flows one way. `experiments` makes the request (experiments, lanes, texts). `job` lets contenders decode in turns,
`blocks` turns the results into `records`. `summary` makes a frame of them, a row a text, and of this the `report`.
`tables`, `figures` and `claims` are data over it, beside the paper's numbers (`published`).
"""
