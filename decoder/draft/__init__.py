"""Growing a draft tree."""
