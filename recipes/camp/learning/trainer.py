"""The trainer that both methods share: verl's V1 ``separate_async`` with the smallest overrides."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import ray
import transfer_queue as tq
from omegaconf import OmegaConf, open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync

from camp.learning.domain_metrics import domain_metrics
from camp.learning.feeding import FeedsSchedule, drop_orphans, reissue_failed, unfinished_positions
from camp.learning.final_student import write_final_student
from camp.learning.lineage import BrokenLineage, Lineage
from camp.learning.one_update import one_update
from camp.learning.state import run_facts, write_state
from camp.routes import read_routes
from camp.sampling.episode import RECORD
from camp.sampling.ledger import EpisodeLedger, create_ledger
from camp.sampling.record import EpisodeRecord
from camp.sampling.replay import EpisodeBuffer
from camp.settings import parse_settings
from onepo.errors import ControlledStop, UserError, last_line
from onepo.trainers import checkpoints
from onepo.trainers.journal import METRICS_FILE, Journal
from onepo.trainers.recording import RecordsMetrics
from onepo.trainers.saving import SavesWhole
from onepo.whole import write_whole

ROLLOUT_DATA, COUNTERS_FILE = "rollout_data", "counters.json"


class CampTrainer(SavesWhole, RecordsMetrics, FeedsSchedule, PPOTrainerSeparateAsync):
    """Sample while learning, update, synchronise: the order is upstream's ``fit``.

    What is added here: the schedule, one update for any number of learners, stops that keep every episode, and what
    is written down. A subclass says what is learned.

    Attributes:
        ledger_class: of the run's ledger.
        told_fields: of the rows in verl's queue, those that ``update_metrics`` needs.
    """

    ledger_class: type[EpisodeLedger] = EpisodeLedger
    told_fields: tuple[str, ...] = ()

    def __init__(self, config):
        with open_dict(config):
            # upstream compares this with its own names in several places
            config.trainer.v1.trainer_mode = "separate_async"
        self.settings = parse_settings(OmegaConf.to_container(config.camp, resolve=True))
        self.checkpoints_to_keep = self.settings.keep_checkpoints
        self.journal = Journal(self.settings.output, events_dir=self.settings.attempt_dir)
        routes = read_routes(Path(self.settings.routes))
        self.ledger = create_ledger(self.ledger_class, self.settings.attempt_dir, list(routes.domains))
        self.lineage = Lineage()
        # of the files as they are now: they may move while the run goes on
        self._facts = run_facts(config, routes)
        self._learning = False  # episodes are taken out, and the weights have not learned from them yet
        self._trained_step = 0  # the last update that is complete
        super().__init__(config)

    # ---- set-up

    def _build_replay_buffer(self):
        return EpisodeBuffer(
            super()._build_replay_buffer(),
            max_staleness=self.settings.max_staleness,
            poll_interval=self.settings.poll_interval,
            check_progress=self._check_progress,
        )

    def _init_dataloader(self):
        with open_dict(self.config):
            self.config.data.val_batch_size = 1  # the size of the empty set is no batch size
        super()._init_dataloader()
        wanted = self.config.trainer.total_training_steps
        self.total_training_steps = min(wanted, self.steps_per_epoch)
        domains = sorted({episode.domain for episode in self.train_dataset.episodes})
        self.journal.event(
            "plan",
            final_step=self.total_training_steps,
            ends_by="the schedule" if self.steps_per_epoch < wanted else "the number of updates",
            episodes=len(self.train_dataset),
            domains=domains,
            train_batch_size=self.config.data.train_batch_size,
        )

    def _load_checkpoint(self):
        resumed = self.settings.resume
        try:
            super()._load_checkpoint()
        except Exception as error:
            if not resumed:
                raise
            raise UserError(f"--resume {resumed}: cannot be loaded: {last_line(error)}") from None
        if resumed:
            self._go_on(Path(resumed))
        else:
            self._forget_later_updates(self.journal.metrics_file)

    def _go_on(self, checkpoint: Path) -> None:
        drop_orphans()
        reissue_failed()  # while a checkpoint is written, episodes go on, and may fail
        self.lineage = Lineage.read(checkpoint)
        self._trained_step = self.global_steps
        unfinished = unfinished_positions()
        try:
            self.lineage.check(unfinished)
        except BrokenLineage as error:
            raise UserError(f"--resume {checkpoint}: its episodes do not add up: {error}") from None
        kept = self._forget_later_updates(checkpoint.parent.parent / METRICS_FILE)
        if self.global_steps and self.global_steps not in kept:  # it ended between the checkpoint and the record
            self.journal.event(
                "note", text=f"the metrics of update {self.global_steps} are missing: they were not kept"
            )
        self.journal.event(
            "note",
            text=f"goes on behind update {self.global_steps} from {checkpoint}: {len(unfinished)} of "
            f"{self.lineage.submitted} submitted episodes are still to be trained on",
        )

    def _forget_later_updates(self, metrics_file: Path) -> list[int]:
        """Remove what earlier invocations wrote of updates that are made anew; returns those with metrics."""
        for file in Path(self.settings.output, ROLLOUT_DATA).glob("*.jsonl"):
            if file.stem.isdecimal() and int(file.stem) > self.global_steps:
                file.unlink()
        return self.journal.adopt(metrics_file, last_step=self.global_steps)

    def on_init_end(self):
        super().on_init_end()
        # for good: a request that reaches a copy on the learners just as it is put to sleep would wait there for ever
        self.switch_to_trainer()

    # ---- the run

    def fit(self, agent_loop_manager):
        try:
            super().fit(agent_loop_manager)
        except ControlledStop as stop:
            stop = getattr(stop, "cause", stop)  # Ray wraps what a worker raised
            self._end_early(stop)
            raise stop from None
        except ray.exceptions.RayActorError as error:
            stop = ControlledStop(f"a process of the run has died: {last_line(error)}", 3)
            self._end_early(stop)
            raise stop from None
        (*_, newest) = checkpoints.list_checkpoints(self.config.trainer.default_local_dir)
        final = write_final_student(newest, self.settings.output)
        self.journal.event("note", text=f"the final student, for python -m camp.evaluate: {final}")
        self.journal.event("end")

    def on_step_begin(self):
        super().on_step_begin()
        self.journal.event("begin", step=self.global_steps)

    def on_sample_end(self):
        super().on_sample_end()
        self._learning = True
        self.journal.event("phase", name="learning from the episodes")

    def step(self, metrics, timing_raw):
        batch = super().step(metrics, timing_raw)
        # before the checkpoint, which is to know them
        keys = episode_keys(batch)
        self.lineage.trained_on(self.global_steps, [int(key.split("_")[0]) for key in keys])
        self._trained_step = self.global_steps
        self._learning = False
        fields = ["extra_fields", *self.told_fields]
        rows = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=fields)
        extra_fields = rows.pop("extra_fields").tolist()
        records = [EpisodeRecord.model_validate(extra[RECORD]) for extra in extra_fields]
        self._write_episodes(records)
        metrics.update(self.update_metrics(records, extra_fields, rows))
        return batch

    def update_metrics(
        self, records: list[EpisodeRecord], extra_fields: list[dict[str, Any]], rows: TensorDict
    ) -> dict[str, float]:
        """What is told of an update's episodes.

        Args:
            records, extra_fields: of each.
            rows: their ``told_fields``, ragged.
        """
        return domain_metrics(records, update=self.global_steps)

    def _check_progress(self) -> None:
        """Raise if the waiting has no end: an episode or a service that failed for good, or a worker that died."""
        self._tell_notes()
        if reason := ray.get(self.ledger.stop_reason.remote()):
            raise ControlledStop(reason, 3)
        try:
            ray.get([worker.__ray_ready__.remote() for worker in self.agent_loop_manager.agent_loop_workers])
        except ray.exceptions.RayActorError as error:
            raise ControlledStop(f"a process that plays episodes has died: {last_line(error)}", 3) from None

    def _end_early(self, stop: ControlledStop) -> None:
        """Keep the episodes for the run that goes on: what waits and what is under way, with the last weights.

        A stop in the midst of an update keeps nothing: its episodes are used up and its weights are half changed, so
        the run goes on from the checkpoint before.
        """
        if not self._learning:
            with suppress(ray.exceptions.RayError):  # a sampler may be what has died
                self.standalone_checkpoint_manager.abort_replicas()
            self.global_steps = self._trained_step
            reissue_failed()
            if not checkpoints.checkpoint_folder(self.config.trainer.default_local_dir, self.global_steps).exists():
                try:
                    self._save_checkpoint()
                except ray.exceptions.RayActorError as error:  # a learner is what has died
                    self.journal.event("note", text=f"no checkpoint can be written: {last_line(error)}")
        self._shutdown_dump_executor()
        self._write_counters()
        self._tell_notes()
        self.journal.event("stop", step=self.global_steps, reason=stop.reason, exit_code=stop.exit_code)

    def _tell_notes(self) -> None:
        for text in ray.get(self.ledger.new_notes.remote()):
            self.journal.event("note", text=text)

    # ---- update

    def _get_required_batch_multiple(self, dp_size):
        return dp_size  # not the size of a mini-batch as well: there is only one

    def _update_actor(self, batch, metrics):
        with one_update(batch):
            batch = super()._update_actor(batch, metrics)
        require_finite(metrics, "actor/grad_norm", self.global_steps)
        return batch

    # ---- what is written

    def _complete_checkpoint(self, staged):
        super()._complete_checkpoint(staged)
        unfinished = unfinished_positions()
        self.lineage.check(unfinished)
        self.lineage.write(staged, unfinished)
        write_state(staged, update=self.global_steps, facts=self._facts)

    def _write_counters(self) -> None:
        counters = ray.get(self.ledger.counters.remote())
        text = json.dumps({"update": self._trained_step, "domains": counters}, indent=2) + "\n"
        write_whole(Path(self.settings.attempt_dir, COUNTERS_FILE), text)

    def _write_episodes(self, records: list[EpisodeRecord]) -> None:
        folder = Path(self.settings.output, ROLLOUT_DATA)
        folder.mkdir(exist_ok=True)
        in_order = sorted(records, key=lambda record: record.schedule.position)
        lines = [f"{record.model_dump_json()}\n" for record in in_order]
        write_whole(folder / f"{self.global_steps}.jsonl", "".join(lines))

    def _compute_metrics(self, batch, metrics, timing_raw, global_steps, epoch):
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
        metrics.update(ray.get(self.ledger.close_step.remote()))
        self._write_counters()
        self._tell_notes()


def episode_keys(batch: KVBatchMeta) -> list[str]:
    """Of its rows, without those that verl added to fill it up."""
    return [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]


def require_finite(metrics: dict, name: str, update: int) -> None:
    """Stop the run on a gradient that is not finite.

    Raises:
        ControlledStop: it is not.
    """
    if not np.isfinite(metrics[name]):
        # verl skips such an update without a word
        raise ControlledStop(f"update {update}: {name.replace('_', ' ')} is not finite", 3)
