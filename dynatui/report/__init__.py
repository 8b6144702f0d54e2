"""Makes one self-contained HTML page from a recording or a benchmark.

Data flows one way: `inputs` detects the kind of a file, `replay` and the benchmark modules make a `Page`, `page`
writes it as HTML, `output` writes it to disk. Only `markup` makes HTML from foreign text, and only `page` embeds data.
"""
