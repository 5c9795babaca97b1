"""The trainer's validation: answers whose grading failed are shown, and no score is made from them."""

import ray

from onepo.trainers.validation import GradedRows, without_nan


class Validates:
    """The hooks of verl's validation; a part of ``OnePOTrainer``."""

    def _validate(self):
        self._validating = True
        self.journal.event("phase", name="validating")
        try:
            metrics = super()._validate()
            # raised when the next step begins, so that the metrics of this one are written down
            self._failed_validation = self._too_many_failed(planned=0)
        finally:
            self._validating = False
        self._tell_failures()
        return {**metrics, **ray.get(self.ledger.close_validation.remote())}

    def _dump_generations(self, inputs, outputs, gts, scores, reward_extra_infos_dict, dump_path):
        infos = {name: without_nan(values) for name, values in reward_extra_infos_dict.items()}
        super()._dump_generations(inputs, outputs, gts, without_nan(scores), infos, dump_path)

    def _val_metrics_update(self, data_sources, sample_uids, reward_extra_infos_dict, sample_turns, **kwargs):
        graded = GradedRows(data_sources, sample_uids, reward_extra_infos_dict)
        if "expected_acc_counts" in kwargs:  # not at the pinned commit
            kwargs["expected_acc_counts"] = graded.expected(kwargs["expected_acc_counts"])
        metrics = super()._val_metrics_update(
            graded.data_sources, graded.sample_uids, graded.infos, sample_turns, **kwargs
        )
        for name in ("acc", "score"):
            for task_type, mean in graded.means(name).items():
                metrics[f"validation/{name}/{task_type}".rstrip("/")] = mean
        return metrics
