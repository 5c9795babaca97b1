"""Inference servers that a run starts for itself: the command, the process that watches it, the owner's handle."""
