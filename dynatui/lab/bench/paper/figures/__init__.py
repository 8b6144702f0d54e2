"""The paper's figures, drawn from measurements made here, and written as files; no file is left incomplete.

`catalogue` names all figures. `marks` determines the appearance, and every other module draws a few related figures.
matplotlib is an optional extra, so it is imported only when figures are drawn.
"""
