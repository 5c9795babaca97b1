"""A teacher behind the HTTP interface of an inference server, and how one that the run starts is called."""

from pathlib import Path

from camp.settings import TeacherSettings
from onepo.endpoints.scoring import ScoringEndpoint
from onepo.servers.local import ServerNames
from onepo.settings import ServerSettings

_OTHER_NAMES = {
    "start": "START_TEACHER_SERVER",
    "backend": "TEACHER_BACKEND",
    "path": "--teacher",
    "auto_kill": "AUTO_KILL_TEACHER_SERVER",
}
SERVER = ServerNames(
    who="the teacher",
    model="teacher",
    options={key: f"TEACHER_SERVER_{key.upper()}" for key in ServerSettings.model_fields} | _OTHER_NAMES,
    rollout_share="actor_rollout_ref.rollout.gpu_memory_utilization",
    reuse="TEACHER_URL={address} TEACHER_BACKEND={backend} TEACHER_NAME={name}, and neither TEACHER_PATH nor "
    "START_TEACHER_SERVER,",
)


def served_teacher(settings: TeacherSettings, *, api_key: str | None) -> ScoringEndpoint:
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


def kept_key(settings: TeacherSettings) -> str | None:
    """The key that the run has put aside."""
    return Path(settings.api_key_file).read_text(encoding="utf-8") if settings.api_key_file else None
