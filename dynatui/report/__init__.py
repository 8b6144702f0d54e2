"""Makes one self-contained HTML page from a recording: only `markup` makes HTML from foreign text, only `page` embeds
data.
"""
