"""Play tasks with a student: ``python -m camp.evaluate --student DIR --routes FILE --tasks FILE [-- Hydra overrides]``.

Its rows are those of a schedule: python -m camp.routes prepare with another --seed makes some that no training saw.
"""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from camp.command_line import orderly_end, services_python
from camp.configuration import Named, compose_config
from camp.routes import read_routes, refuse_template
from camp.schedule import read_schedule
from camp.services import ManagedServices, check_fingerprints
from onepo.errors import UserError
from onepo.process import choose_ray, chosen_device, keep_terminal, set_process_environment
from onepo.servers.managed import ServerStartFailed
from onepo.terminal import say
from onepo.whole import write_whole

if TYPE_CHECKING:
    from camp.sampling.record import EpisodeRecord


def evaluate(
    student: Annotated[Path, typer.Option(metavar="DIR", help="Model directory, such as OUTPUT/final_student.")],
    routes: Annotated[Path, typer.Option(metavar="FILE", help="routes.json; its managed services are started.")],
    tasks: Annotated[Path, typer.Option(metavar="FILE", help="Rows of a schedule.")],
    at_once: Annotated[int, typer.Option(min=1, help="Episodes under way at one time.")] = 32,
    python: Annotated[
        str | None,
        typer.Option(
            "--services-python",
            metavar="PYTHON",
            help="Runs the services that the routes call managed.",
            show_default="CAMP_SERVICES_PYTHON, else what make services made",
        ),
    ] = None,
    records: Annotated[Path | None, typer.Option(metavar="FILE", help="Gets a JSON line for each episode.")] = None,
    overrides: Annotated[list[str] | None, typer.Argument(help="Hydra overrides, behind a --.")] = None,
) -> None:
    """Reward, success and limit rate per domain. Exit code 3 when episodes could not be played, 2 on wrong input."""
    with orderly_end() as take_signals, ExitStack() as clean_up:
        errors = Console(file=os.fdopen(os.dup(sys.stderr.fileno()), "w"))
        complain = partial(say, errors)
        common = Path(str(files("camp.config").joinpath("common.yaml")))
        set_process_environment(common, device=chosen_device(overrides or []))
        config = compose_config(_named(student, routes), overrides or [])
        _check_device(config)
        _check_student(config)
        bound = read_routes(routes)
        refuse_template(bound)
        rows, digest = read_schedule(tasks)
        if unknown := sorted({row.domain for row in rows} - bound.domains.keys()):
            raise UserError(f"--tasks {tasks}: has the domains {', '.join(unknown)}, which the routes do not have")
        if digest == bound.schedule_sha256:
            complain("note: a training with these routes learns from these very episodes; others: prepare --seed")
        if records is not None:
            _check_records(records)
        wanted = {name: bound.domains[name] for name in {row.domain for row in rows}}
        ray_dir = choose_ray(config, None)
        if ray_dir:
            clean_up.callback(shutil.rmtree, ray_dir, ignore_errors=True)
        logs = Path(tempfile.mkdtemp(prefix="camp-evaluate-"))
        clearing = clean_up.enter_context(ExitStack())
        clearing.callback(shutil.rmtree, logs, ignore_errors=True)
        sys.stderr = errors.file  # for what ends the command
        out = Console(file=keep_terminal(logs / "evaluate.log"))  # verl's output goes there
        lost: dict[str, str] = {}
        services = ManagedServices(
            wanted,
            python=services_python(python, os.environ),
            logs_dir=logs,
            start_timeout=config.camp.services.start_timeout,
            max_restarts=config.camp.services.max_restarts,
            say=complain,
            lost=lambda name, reason: lost.update({name: f"the service of {name} is lost: {reason}"}),
        )
        clean_up.callback(services.stop)
        try:
            services.start()
        except ServerStartFailed as error:
            clearing.pop_all()  # the message names the log
            complain(f"error: {error}")
            raise typer.Exit(1) from None
        asyncio.run(check_fingerprints(wanted))

        from camp.evaluation import Evaluation, results_by_domain  # slow, and reads the environment

        _start_ray(config, clean_up)
        take_signals()
        complain("loading the student")
        evaluation = Evaluation(config)
        with Progress(console=errors, transient=True) as progress:
            bar = progress.add_task("episodes", total=len(rows))
            found = evaluation.play(
                rows,
                wanted,
                at_once=min([at_once, *(route.managed.sessions for route in wanted.values() if route.managed)]),
                retries=config.camp.episode_retries,
                outage_limit=config.camp.outage_limit,
                lost=lost,
                done=lambda: progress.advance(bar),
            )
        out.print(_table(results_by_domain(rows, found)))
        reasons = [one for one in found if isinstance(one, str)]
        if records is not None:
            _write_records(records, [one for one in found if not isinstance(one, str)])
        if reasons:
            clearing.pop_all()
            complain(f"{len(reasons)} episodes could not be played, the first one because {reasons[0]}; logs: {logs}")
            raise typer.Exit(3)


def _named(student: Path, routes: Path) -> Named:
    return Named("rl", str(student.absolute()), None, str(routes.absolute()), None, None, None)


def _check_device(config: DictConfig) -> None:
    import torch

    if config.trainer.device == "cpu" or os.environ.get("RAY_ADDRESS"):
        return  # the GPUs of a cluster need not be on this machine
    key = "actor_rollout_ref.rollout.n_gpus_per_node"
    wanted, found = OmegaConf.select(config, key), torch.cuda.device_count()
    if found == 0:
        raise UserError("no GPU is visible: add -- device=cpu to evaluate on the CPU, or check the driver")
    if found < wanted:
        raise UserError(f"{found} GPUs are visible and {wanted} are to sample: add -- {key}={found}")


def _check_records(file: Path) -> None:
    folder = file.absolute().parent
    if not folder.is_dir():
        raise UserError(f"--records {file}: its folder does not exist")
    if file.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"--records {file}: cannot be written: name a file, in a folder that you may write to")


def _write_records(file: Path, records: Sequence["EpisodeRecord"]) -> None:
    try:
        write_whole(file, "".join(f"{record.model_dump_json()}\n" for record in records))
    except OSError as error:
        raise UserError(f"--records {file}: cannot be written ({error.strerror})") from None


def _check_student(config: DictConfig) -> None:
    from camp.sizes import context_problems
    from onepo.preflight.model_directory import model_directory_problems

    model = config.actor_rollout_ref.model
    problems = model_directory_problems(Path(model.path), "--student", trust_remote_code=model.trust_remote_code)
    if found := list(problems) or list(context_problems(config)):
        raise UserError("\n".join(found))


def _start_ray(config: DictConfig, clean_up: ExitStack) -> None:
    import ray

    if config.trainer.device == "cpu":  # logical: each sampler is scheduled on one
        config.ray_kwargs.ray_init.num_gpus = config.actor_rollout_ref.rollout.n_gpus_per_node
    ray.init(**OmegaConf.to_container(config.ray_kwargs.ray_init, resolve=True), log_to_driver=False)
    clean_up.callback(ray.shutdown)


def _table(results: dict) -> Table:
    table = Table("domain", "episodes", "reward", "success", "limits", "failed")
    for name, result in results.items():
        shares = [result.reward, result.success, result.limit_rate]
        told = ["-" if share is None else f"{share:.3f}" for share in shares]
        table.add_row(name, str(result.episodes), *told, str(result.failed))
    return table


if __name__ == "__main__":
    try:
        typer.run(evaluate)
    except SystemExit as ended:
        exit_code = ended.code or 0
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)  # Ray's threads may abort an interpreter that ends after a signal, and hide the exit code
