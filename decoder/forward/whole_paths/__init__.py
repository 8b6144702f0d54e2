"""Modules that take no tree mask: root-to-leaf paths are computed as a batch, in copies of the module's own cache."""
