"""Watching a server of somebody else's: what its page of metrics says of speculative decoding. Knows no screen."""
