"""A teacher behind the HTTP interface of an inference server."""

from pathlib import Path

from onepo.endpoints.scoring import ScoringEndpoint
from onepo.settings import ScoringTeacherSettings


def served_teacher(settings: ScoringTeacherSettings, *, api_key: str | None) -> ScoringEndpoint:
    """The inference server at ``settings.url``."""
    return ScoringEndpoint(
        engine=settings.engine,
        url=settings.url,
        model=settings.model,
        timeout=settings.timeout,
        max_concurrency=settings.max_concurrency,
        outage_limit=settings.outage_limit,
        api_key=api_key,
    )


def kept_key(settings: ScoringTeacherSettings) -> str | None:
    """The key that the run has put aside."""
    return Path(settings.api_key_file).read_text(encoding="utf-8") if settings.api_key_file else None
