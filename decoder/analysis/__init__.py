"""What recorded rounds tell: figures, levels of trees, other knobs. Imports no torch."""
