"""Modules that take no tree mask: each root-to-leaf path is a row of a batch over the module's own cache."""
