"""The advised options of drafting for each engine, as text to paste: one module per engine, listed in `table`."""
