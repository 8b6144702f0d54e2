"""Makes one self-contained HTML page from a recording; only the module `page` escapes text and embeds data."""
