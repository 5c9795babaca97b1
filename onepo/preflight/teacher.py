"""The online teacher: what can be known before it is asked."""

from collections.abc import Iterator

from onepo.endpoints.address import plain_address_problem
from onepo.settings import Settings


def teacher_problems(settings: Settings) -> Iterator[str]:
    teacher = settings.teacher
    if not teacher.enabled:
        return
    if not settings.teacher_enabled:
        yield "ONLINE_TEACHER_ENABLED=True asks a teacher, and TEACHER_ENABLED=False wants none: set one of them"
        return
    for option, value in (("TEACHER_API_URL", teacher.url), ("TEACHER_MODEL", teacher.model)):
        if not value:
            yield f"{option} is not set: ONLINE_TEACHER_ENABLED=True needs it"
    if not teacher.answers_dir:
        yield "onepo.teacher.answers_dir is not set: the online teacher's answers are kept there"
    if teacher.url and (problem := plain_address_problem(teacher.url)):
        yield f"TEACHER_API_URL: {problem}; a key goes into ONEPO_TEACHER_API_KEY"
