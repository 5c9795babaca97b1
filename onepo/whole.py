"""Files that are there as a whole or not at all."""

from pathlib import Path


def write_whole(file: Path, text: str) -> None:
    """Write a text under another name, and give it its own at the end."""
    fresh = file.with_name(f"{file.name}.tmp")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(file)
