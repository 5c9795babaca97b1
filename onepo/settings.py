"""Types and checks of every option that this package adds to verl's configuration (the ``onepo`` section).

The values live in ``config/onepo.yaml``; what each option does is in ``docs/options.md``.
"""

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from onepo.errors import UserError

_OPTIONS = {"max_checkpoints": "MAX_ACTOR_CHECKPOINTS"}  # the others are the launcher's in small letters
_LARGEST_SEED = 2**32 - 1  # numpy takes no larger one


class Settings(BaseModel):
    """The ``onepo`` section, checked. Unknown keys are refused, so that a typing error cannot pass silently."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

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
    test_steps: list[int]
    max_checkpoints: int = Field(ge=1)
    poll_interval: float = Field(gt=0)
    per_request_seeds: bool

    @model_validator(mode="after")
    def _plateau_window_is_usable(self) -> "Settings":
        if self.retirement_plateau_window == 0:
            raise ValueError(
                "retirement_plateau_window=0 holds no step: use -1 to switch the plateau off, else at least 1"
            )
        if any(step < 1 for step in self.test_steps):
            raise ValueError(f"TEST_STEPS={self.test_steps} must be a list of steps, each at least 1")
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
                name = str(item["loc"][0])
                text = f"{_OPTIONS.get(name, name.upper())} (onepo.{name})={item['input']!r}: {text}"
            lines.append(text)
        raise UserError("\n".join(lines)) from None
