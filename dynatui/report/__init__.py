"""Recordings and benchmarks as one HTML page each, which needs nothing but a browser to be read.

Data flows one way: `inputs` tells what a file is, `replay` and the pages of benchmarks turn that into a `Page`, `page`
writes it as HTML, `output` puts it on disk. Foreign text becomes HTML in `markup` alone, and data in `page` alone.
"""
