"""What verl logs, written down for the terminal as well; a part of our trainers, before verl's class."""

from onepo.trainers.journal import RecordingLogger, numbers


class RecordsMetrics:
    """Attributes: journal: of the trainer."""

    @property
    def logger(self):
        """verl's tracker; what it logs is also written to the journal."""
        return self._logger

    @logger.setter
    def logger(self, tracking):
        self._logger = RecordingLogger(tracking, self.journal, self._tell_terminal)

    def _tell_terminal(self, step, metrics):
        self.journal.event("step", step=step, final_step=self.total_training_steps, **numbers(metrics))
