"""Which step is the last, which validate and which save. Pure."""

from dataclasses import dataclass

from omegaconf import DictConfig

from onepo.settings import Settings


def validation_is_on(test_freq: int, test_steps: list[int], val_before_train: bool) -> bool:
    """Whether a run with these options validates at all, and so needs validation data."""
    return test_freq > 0 or bool(test_steps) or val_before_train


@dataclass(frozen=True)
class Schedule:
    """Steps count from 1; an epoch is ``steps_per_epoch`` steps, however many prompts dynamic sampling used up.

    Attributes:
        max_steps: TOTAL_TRAINING_STEPS, or None for no such limit.
        test_freq: validate every so many steps; 0 or less: not by frequency.
        test_steps: validate at these steps as well.
        val_before_train: validate before the first step as well.
        save_freq: save every so many steps; 0 or less: at the final step only.
    """

    steps_per_epoch: int
    total_epochs: int
    max_steps: int | None
    test_freq: int
    test_steps: list[int]
    val_before_train: bool
    save_freq: int

    @classmethod
    def of(cls, config: DictConfig, settings: Settings, *, steps_per_epoch: int) -> "Schedule":
        """The schedule that a run's options ask for."""
        trainer = config.trainer
        return cls(
            steps_per_epoch=steps_per_epoch,
            total_epochs=trainer.total_epochs,
            max_steps=trainer.total_training_steps,
            test_freq=trainer.test_freq,
            test_steps=settings.test_steps,
            val_before_train=trainer.val_before_train,
            save_freq=trainer.save_freq,
        )

    @property
    def final_step(self) -> int:
        by_epochs = self.steps_per_epoch * self.total_epochs
        return by_epochs if self.max_steps is None else min(by_epochs, self.max_steps)

    @property
    def ends_by(self) -> str:
        """The option that ends the run."""
        return "TOTAL_TRAINING_STEPS" if self.final_step == self.max_steps else "TOTAL_EPOCHS"

    @property
    def validates(self) -> bool:
        """Whether any validation is on; then the final step validates too."""
        return validation_is_on(self.test_freq, self.test_steps, self.val_before_train)

    def validates_at(self, step: int) -> bool:
        if not self.validates:
            return False
        regular = self.test_freq > 0 and step % self.test_freq == 0
        return regular or step in self.test_steps or step == self.final_step

    def saves_at(self, step: int) -> bool:
        return step == self.final_step or (self.save_freq > 0 and step % self.save_freq == 0)
