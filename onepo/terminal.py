"""Text on a terminal: lines that are not wrapped, and text of others that cannot give it orders."""

from rich.console import Console
from rich.text import Text


def say(console: Console, text: str) -> None:
    """Print a line as it stands."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def harmless(text: str) -> str:
    """The text with what is neither printable nor a line break or a tab spelt out (an escape is \\x1b)."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def as_text(text: str, style: str = "") -> Text:
    """Text of a model or a file, for rich: without its markup, and harmless."""
    return Text(harmless(text), style=style)
