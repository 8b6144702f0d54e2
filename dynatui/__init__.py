"""dynatui: watch and steer speculative decoding, live, in a terminal."""
