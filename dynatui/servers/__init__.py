"""What one's own prompts promise of a server, the flags that keep it, and what a running server shows."""
