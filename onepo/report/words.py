"""Numbers and time spans as people read them."""

from typing import Any


def figure(metrics: dict[str, Any], name: str, form: str) -> str:
    """A metric as text; "-" when the step has none or it is not finite."""
    value = metrics.get(name)
    return "-" if value is None else format(value, form)


def duration(seconds: float) -> str:
    """A time span for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
