"""Sampling episodes: the same for both methods, and the same for every domain."""

from pathlib import Path

AGENTS_FILE = Path(__file__).with_name("agents.yaml")
