"""The advised drafting options as text to paste, with one module for each engine; `table` lists the engines."""
