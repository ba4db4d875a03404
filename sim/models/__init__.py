"""The models that are trained: one file each."""
