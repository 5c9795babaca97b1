"""How a user knows the inference server that a run starts for its teacher."""

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
