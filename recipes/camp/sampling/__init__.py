"""Sampling episodes: the same for both methods, and the same for every domain."""
