"""Training of the embedded pair, the target and draft that dynatui ships. No other package imports this package."""
