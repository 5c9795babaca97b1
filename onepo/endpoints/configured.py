"""The endpoint that a run's configuration describes."""

from pathlib import Path

from onepo.endpoints.chat import ChatEndpoint, RequestForm
from onepo.settings import GraderSettings, TeacherSettings


def configured_endpoint(settings: GraderSettings | TeacherSettings, *, model: str) -> ChatEndpoint:
    """Made by the form that the probe at the start settled on; the key comes from the file that the run keeps it in."""
    key = Path(settings.api_key_file).read_text(encoding="utf-8") if settings.api_key_file else None
    return ChatEndpoint(
        url=settings.url,
        model=model,
        form=RequestForm(**settings.form),
        timeout=settings.timeout,
        max_concurrency=settings.max_concurrency,
        outage_limit=settings.outage_limit,
        api_key=key,
    )
