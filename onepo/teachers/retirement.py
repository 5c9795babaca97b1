"""Teacher Retirement: when a teacher response takes part, for one prompt and for the whole run.

Also the two reproducible draws of teacher guidance. They depend on the numbers given and on nothing else, so neither
the order in which groups finish nor a restart changes them.
"""

import random
from collections.abc import Sequence

import numpy as np

# 0.96 - 0.95 is a little more than 0.01 in floating point, and a user means it not to be
_ROUNDING = 1e-9


def teacher_is_used(teacher_reward: float, student_rewards: Sequence[float]) -> bool:
    """Whether the teacher's response replaces a rollout: its reward is finite and above every student's.

    Rewards are compared in float32, as the batch stores them; at equal rewards the student's rollout stays.
    """
    teacher = np.float32(teacher_reward)
    students = np.asarray(student_rewards, dtype=np.float32)
    return bool(np.isfinite(teacher) and np.all(teacher > students))


def draw_session(*, seed: int, step: int, index: int, n: int) -> int:
    """Which of the ``n`` rollouts of record ``index`` gives way to the teacher's response, uniform in [0, n)."""
    return _draw("session", seed, step, index, n)


def draw_response(*, seed: int, step: int, index: int, count: int) -> int:
    """Which of the ``count`` cached teacher responses of record ``index`` is taken, uniform in [0, count)."""
    return _draw("response", seed, step, index, count)


def _draw(purpose: str, seed: int, step: int, index: int, size: int) -> int:
    # A string seed is hashed with SHA-512, the same in every process; the purpose keeps the two draws independent.
    return random.Random(f"{purpose} {seed} {step} {index}").randrange(size)


class RetirementController:
    """The optional global stops of the teacher. Once stopped, it stays stopped.

    Args:
        max_steps: the teacher takes part in the first ``max_steps`` steps; 0 never, -1 without limit.
        plateau_window: number of last retirement rates that are looked at; -1 switches the plateau off.
        plateau_tolerance: the plateau's largest difference between two of these rates.
        plateau_min_rate: each of these rates must reach it.

    Attributes:
        disabled_reason: ``"step_limit"`` or ``"plateau"`` once the teacher is stopped, else None.
    """

    def __init__(self, max_steps: int, plateau_window: int, plateau_tolerance: float, plateau_min_rate: float):
        self._max_steps = max_steps
        self._window = plateau_window
        self._tolerance = plateau_tolerance
        self._min_rate = plateau_min_rate
        self._rates: list[float] = []
        self.disabled_reason: str | None = None
        self._apply_step_limit(steps_done=0)

    def teacher_enabled(self, step: int) -> bool:
        """Whether a teacher takes part in ``step`` (the first one is 1)."""
        return self.disabled_reason is None and (self._max_steps == -1 or step <= self._max_steps)

    def close_step(self, step: int, rate: float | None) -> None:
        """Take the retirement rate of a finished step; None when the step had no candidate, which adds no rate."""
        if rate is not None and self._window != -1:
            self._rates = [*self._rates, rate][-self._window :]
            self._apply_plateau()
        self._apply_step_limit(steps_done=step)

    def state_dict(self) -> dict:
        """What a checkpoint keeps, as plain JSON values."""
        return {"rates": self._rates, "disabled_reason": self.disabled_reason}

    def load_state_dict(self, state: dict) -> None:
        """Continue from ``state_dict()`` under the limits given to the constructor, which may be others than then."""
        if self._window != -1:
            self._rates = list(state["rates"])[-self._window :]
            if state["disabled_reason"] == "plateau":
                self.disabled_reason = self.disabled_reason or "plateau"

    def _apply_step_limit(self, steps_done: int) -> None:
        if self._max_steps != -1 and steps_done >= self._max_steps:
            self.disabled_reason = self.disabled_reason or "step_limit"

    def _apply_plateau(self) -> None:
        full = len(self._rates) == self._window
        spread = max(self._rates) - min(self._rates)
        if full and min(self._rates) >= self._min_rate and spread <= self._tolerance + _ROUNDING:
            self.disabled_reason = self.disabled_reason or "plateau"
