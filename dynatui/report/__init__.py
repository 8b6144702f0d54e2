"""Recordings and benchmarks as one self-contained HTML page each.

Data flows one way: `inputs` detects the kind of a file, `replay` and the benchmark modules make a `Page`, `page`
writes it as HTML, `output` puts it on disk. Foreign text becomes HTML in `markup` alone, and data in `page` alone.
"""
