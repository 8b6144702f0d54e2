"""Linear layers by torch, and the speed of this CPU."""
