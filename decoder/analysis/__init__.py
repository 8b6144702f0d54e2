"""Analysis of recorded rounds: figures, acceptance by tree level, bottlenecks, what-if tables. Imports no torch."""
