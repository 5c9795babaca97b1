"""Types and checks of every option that this package adds to verl's configuration (the ``onepo`` section).

The values live in ``config/onepo.yaml``; what each option does is in ``docs/options.md``.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, ValidationError, model_validator

from onepo.errors import UserError

# the others are the launcher's in small letters
_OPTIONS = {
    "max_checkpoints": "MAX_ACTOR_CHECKPOINTS",
    "teacher.enabled": "ONLINE_TEACHER_ENABLED",
    "teacher.url": "TEACHER_API_URL",
    "grader.prompt_file": "REWARD_PROMPT_FILE",
    "grader.max_failure_rate": "REWARD_MAX_FAILURE_RATE",
    "reward_function.spec": "REWARD_FUNCTION",
    "reward_server.start": "START_REWARD_SERVER",
    "reward_server.auto_kill": "AUTO_KILL_REWARD_SERVER",
    **{f"reward_server.{key}": f"REWARD_SERVER_{key.upper()}" for key in ("backend", "python", "host")},
    **{f"reward_server.{key}": f"REWARD_SERVER_{key.upper()}" for key in ("start_timeout", "max_restarts")},
}
_PREFIXES = {
    "grader": "REWARD_MODEL_",
    "reward_server": "REWARD_MODEL_",
    "reward_function": "REWARD_FUNCTION_",
    "teacher": "TEACHER_",
}
_LARGEST_SEED = 2**32 - 1  # numpy takes no larger one


def option_of(path: str) -> str:
    """The launcher's name of a key of the ``onepo`` section, such as ``grader.timeout``."""
    section, _, key = path.rpartition(".")
    return _OPTIONS.get(path) or _PREFIXES.get(section, "") + key.upper()


# fields of a grading request that are not the user's
_OUR_FIELDS = {
    "model",
    "messages",
    "temperature",
    "max_tokens",
    "max_completion_tokens",
    "response_format",
    "stream",
    "n",
}


def _json_object(text: Any) -> Any:
    try:
        value = json.loads(text) if isinstance(text, str) else text
    except ValueError as error:
        raise ValueError(f"must be a JSON object, and is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError('must be a JSON object such as {"chat_template_kwargs": {"enable_thinking": false}}')
    if ours := sorted(value.keys() & _OUR_FIELDS):
        raise ValueError(f"must not hold {', '.join(ours)}, which every request sets by itself")
    return value


class _Section(BaseModel):
    """Unknown keys are refused, so that a typing error cannot pass silently."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TeacherSettings(_Section):
    """How the online teacher is asked (``onepo.teacher``).

    Attributes:
        answers_dir: where its answers are kept for later runs.
        api_key_file, form: as in ``GraderSettings``.
    """

    enabled: bool
    url: str | None
    model: str | None
    max_tokens: int = Field(ge=1)
    max_concurrency: int = Field(ge=1)
    timeout: float = Field(gt=0)
    max_retries: int = Field(ge=0)
    outage_limit: float = Field(ge=0)
    answers_dir: str | None
    api_key_file: str | None
    form: dict[str, Any] | None


class GraderSettings(_Section):
    """How the grader is asked (``onepo.grader``). A managed server fills in ``url`` and ``name``.

    Attributes:
        api_key_file: where the run keeps the key, readable by its user only; the key itself is in no configuration.
        form: what the probe at the start settled on (``endpoints.chat.RequestForm``), None before it.
    """

    url: str | None
    name: str | None
    timeout: float = Field(gt=0)
    max_tokens: int = Field(ge=1)
    max_retries: int = Field(ge=0)
    max_concurrency: int = Field(ge=1)
    extra_body: Annotated[dict[str, Any], BeforeValidator(_json_object)]
    outage_limit: float = Field(ge=0)
    prompt_file: str | None
    max_failure_rate: float = Field(ge=0, le=1)
    api_key_file: str | None
    form: dict[str, Any] | None


class ServerSettings(_Section):
    """An inference server that a run starts and stops by itself, as the grader (``onepo.reward_server``).

    Attributes:
        python: the interpreter of its environment; None: that of the run.
        path: directory of its model.
        dp, tp: copies of the model, and GPUs of a copy; on a GPU only, as ``mem_fraction``.
        mem_fraction: share of a GPU's memory.
        gpus: as in CUDA_VISIBLE_DEVICES; None: those of the run.
        extra_args: further arguments, as words of a shell.
        start_timeout: seconds until a start that does not get ready is given up.
        max_restarts: when it ends by itself, over the whole run.
        auto_kill: it ends with the run.
    """

    start: bool
    backend: Literal["sglang", "vllm"]
    python: str | None
    path: str | None
    host: str = Field(min_length=1)
    port: int = Field(ge=1, le=65535)
    dp: int = Field(ge=1)
    tp: int = Field(ge=1)
    mem_fraction: float = Field(gt=0, lt=1)
    chat_template: str | None
    gpus: str | None = Field(pattern=r"^[0-9A-Za-z-]+(,[0-9A-Za-z-]+)*$")
    extra_args: str
    start_timeout: float = Field(gt=0)
    max_restarts: int = Field(ge=0)
    auto_kill: bool


class ScoringTeacherSettings(_Section):
    """Who scores the student's tokens: verl's own teachers, or an inference server that is asked by HTTP.

    Attributes:
        url: the server's address; None: verl's own teachers do it.
        engine: the kind of server.
        model: the name it is served by.
        server: it is started and stopped by the run, which then sets ``url``.
        timeout: seconds for an attempt to score one episode.
        max_concurrency: episodes that are scored at one time, of each process that plays episodes.
        outage_limit: seconds to wait for a server that is away; then the run saves and stops.
        max_retries: further attempts after a time-out or a failure.
        max_unscored_share: of as many episodes as an update has; with more of them unscored the run saves and stops.
        tokenizer: directory with its tokenizer, to be compared with the student's; None: it is not.
        api_key_file: where the run keeps the key, readable by its user only; the key itself is in no configuration.
    """

    url: str | None
    engine: Literal["sglang", "vllm"]
    model: str = Field(min_length=1)
    server: ServerSettings
    timeout: float = Field(gt=0)
    max_concurrency: int = Field(ge=1)
    outage_limit: float = Field(ge=0)
    max_retries: int = Field(ge=0)
    max_unscored_share: float = Field(ge=0, lt=1)
    tokenizer: str | None
    api_key_file: str | None


class RewardFunctionSettings(_Section):
    """The user's own reward (``onepo.reward_function``)."""

    spec: str | None
    timeout: float = Field(gt=0)
    workers: int = Field(ge=1)


class Settings(_Section):
    """The ``onepo`` section, checked."""

    run_dir: str = Field(min_length=1)
    ray_dir: str | None
    logs_dir: str = Field(min_length=1)
    config_dir: str = Field(min_length=1)
    seed: int = Field(ge=0, le=_LARGEST_SEED)
    probability_floor: float = Field(gt=0, lt=1)
    teacher_enabled: bool
    teacher_max_steps: int = Field(ge=-1)
    retirement_plateau_window: int = Field(ge=-1)
    retirement_plateau_tolerance: float = Field(ge=0)
    retirement_plateau_min_rate: float = Field(ge=0, le=1)
    max_num_gen_batches: int
    enable_overlong_buffer: bool
    overlong_buffer_len: int = Field(ge=0)
    overlong_penalty_factor: float = Field(ge=0)
    answer_expected_tokens: int = Field(ge=0)
    answer_buffer_tokens: int = Field(ge=1)
    answer_penalty_factor: float = Field(ge=0)
    answer_marker: str
    require_thinking: bool
    test_steps: list[StrictInt]
    max_checkpoints: int = Field(ge=1)
    rollout_dump_freq: int = Field(ge=0)
    rollout_dump_samples: int = Field(ge=1)
    save_training_state: bool
    resume: str | None
    poll_interval: float = Field(gt=0)
    per_request_seeds: bool
    teacher: TeacherSettings
    grader: GraderSettings
    reward_function: RewardFunctionSettings
    reward_server: ServerSettings

    @model_validator(mode="after")
    def _plateau_window_is_usable(self) -> "Settings":
        if self.retirement_plateau_window == 0:
            raise ValueError(
                "retirement_plateau_window=0 holds no step: use -1 to switch the plateau off, else at least 1"
            )
        if any(step < 1 for step in self.test_steps) or len(set(self.test_steps)) < len(self.test_steps):
            raise ValueError(f"TEST_STEPS={self.test_steps} must be a list of different steps, each at least 1")
        return self


def parse_settings(section: dict) -> Settings:
    """Check the resolved ``onepo`` section.

    Raises:
        UserError: one line per bad value, with the value found and what is allowed.
    """
    try:
        return Settings.model_validate(section)
    except ValidationError as error:
        lines = []
        for item in error.errors():
            text = item["msg"].removeprefix("Value error, ")
            if item["loc"]:
                path = ".".join(str(part) for part in item["loc"][:2] if isinstance(part, str))
                text = f"{option_of(path)} (onepo.{path})={item['input']!r}: {text}"
            lines.append(text)
        raise UserError("\n".join(lines)) from None
