"""Analysis of recorded rounds: figures, acceptance by tree level, bottlenecks, what-if tables. This package does not
import torch.
"""
