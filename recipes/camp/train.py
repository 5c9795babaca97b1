"""The training's command line: ``python -m camp.train --method rl --student DIR ... [-- Hydra overrides]``.

Exit codes: 0 finished, 1 crashed, 2 wrong input (nothing was started), 3 stopped by a limit, 128 + n by the signal n.
"""

import os
import sys
import time
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

import typer
from omegaconf import DictConfig

from camp.command_line import services_python
from camp.configuration import Named, compose_config, printable
from camp.holding import hold
from onepo.errors import UserError
from onepo.process import chosen_device, end_with_the_launcher, set_process_environment, take_secret
from onepo.report.record import reserve_directory
from onepo.report.secrets import masked_override

if TYPE_CHECKING:  # they import Ray and verl, which the environment is set for first
    from camp.preflight import Checked
    from camp.run import CampRun

TEACHER_KEY = "TEACHER_API_KEY"  # the variable; its value is in no configuration

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(context_settings={"allow_interspersed_args": True})
def train(
    method: Annotated[Literal["rl", "opd"], typer.Option(help="rl: PPO with a critic. opd: a teacher's signal.")],
    student: Annotated[str | None, typer.Option(help="Model directory of the student.")] = None,
    teacher: Annotated[
        str | None, typer.Option(help="Directory of the teacher, or the address of its server (opd).")
    ] = None,
    routes: Annotated[str | None, typer.Option(help="routes.json of python -m camp.routes prepare.")] = None,
    schedule: Annotated[str | None, typer.Option(help="train_schedule.jsonl, made with these routes.")] = None,
    output: Annotated[str | None, typer.Option(help="Directory of the run; holds no other run's checkpoints.")] = None,
    resume: Annotated[str | None, typer.Option(help="Checkpoint to go on from, with everything in it.")] = None,
    python: Annotated[
        str | None,
        typer.Option(
            "--services-python",
            metavar="PYTHON",
            help="Runs the services that the routes call managed.",
            show_default="CAMP_SERVICES_PYTHON, else what make services made",
        ),
    ] = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print the configuration and end.")] = False,
    overrides: Annotated[list[str] | None, typer.Argument(help="Hydra overrides, behind a --.")] = None,
) -> None:
    """Train a student in the task services of the routes."""
    named = Named(method, *map(_absolute, (student, teacher, routes, schedule, output, resume)))
    services = services_python(python, os.environ)
    raise typer.Exit(_train(named, overrides or [], services=services, print_config=print_config))


def _absolute(path: str | None) -> str | None:
    if not path or "://" in path:  # a teacher may be an address
        return path or None
    return os.path.abspath(os.path.expanduser(path))


def _train(named: Named, overrides: list[str], *, services: str, print_config: bool) -> int:
    end_with_the_launcher()
    key = take_secret(TEACHER_KEY)
    try:
        common = files("camp.config").joinpath("common.yaml")
        set_process_environment(Path(str(common)), device=chosen_device(overrides))
        if print_config:
            shown_as = replace(named, output=named.output or "OUTPUT")
            print(printable(compose_config(shown_as, overrides)), end="")
            return 0
        config = compose_config(named, overrides)
        from camp.learning.final_student import write_final_student
        from camp.preflight import check

        config.camp.services.python = services
        checked = check(config, named, overrides)
        if checked.nothing_left is not None:
            print(checked.nothing_left)
            own = Path(named.resume).resolve().parent == Path(config.trainer.default_local_dir).resolve()
            if own:  # the run may have ended between the two
                write_final_student(Path(named.resume), named.output)
            return 0
        if checked.settings.teacher and checked.settings.teacher.url:
            from camp.opd.run import ask_once

            ask_once(config, checked.settings.teacher, api_key=key or None, say=print)
        lock, attempt = _enter(Path(named.output))
    except KeyboardInterrupt:
        return 130
    except UserError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return 2
    config.camp.attempt_dir = str(attempt)
    with lock:
        return _run(config, checked.of_attempt(str(attempt)), [*map(masked_override, overrides)], key).train()


def _run(config: DictConfig, checked: "Checked", overrides: list[str], teacher_key: str) -> "CampRun":
    if checked.settings.method == "opd":
        from camp.opd.run import OPDRun

        return OPDRun(config, checked, overrides, teacher_key=teacher_key)
    from camp.run import CampRun

    return CampRun(config, checked, overrides)


def _enter(output: Path) -> tuple[BinaryIO, Path]:
    """Make the output, and this invocation's directory in it; the file that comes with it keeps others out."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        return hold(output), reserve_directory(output / "state" / time.strftime("%Y%m%d-%H%M%S"))
    except OSError as error:
        raise UserError(f"--output {output}: cannot be written to ({error.filename}: {error.strerror})") from None


if __name__ == "__main__":
    try:
        app()
    except SystemExit as ended:
        exit_code = ended.code or 0
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)  # Ray's threads may abort an interpreter that ends after a signal, and hide the exit code
