"""Types and checks of every option that this package adds to verl's configuration (the ``onepo`` section).

The values live in ``config/onepo.yaml``; what each option does is in ``docs/options.md``.
"""

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from onepo.errors import UserError


class Settings(BaseModel):
    """The ``onepo`` section, checked. Unknown keys are refused, so that a typing error cannot pass silently."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_dir: str = Field(min_length=1)
    ray_dir: str | None
    logs_dir: str = Field(min_length=1)
    config_dir: str = Field(min_length=1)
    seed: int = Field(ge=0)
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
            raise ValueError(f"test_steps={self.test_steps} must be a list of steps, each at least 1")
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
            name = ".".join(str(part) for part in ("onepo", *item["loc"]))
            lines.append(f"{name}={item['input']!r}: {item['msg']}" if item["loc"] else item["msg"])
        raise UserError("\n".join(lines)) from None
