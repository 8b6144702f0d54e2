"""Makes one self-contained HTML page from a recording: only `page` makes HTML from foreign text and embeds data."""
