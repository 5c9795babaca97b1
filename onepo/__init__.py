"""OnePO: reinforcement learning from teacher responses, as a plugin for an unmodified verl."""

__version__ = "0.1.0"
