"""CAMP's configuration for tests: the shipped one with changes, never a copy of its values."""

from pathlib import Path

from omegaconf import DictConfig

from camp.configuration import Named, compose_config


def camp_config(
    *overrides: str, student: Path | str = "/none/student", schedule: Path | str = "/none/schedule"
) -> DictConfig:
    named = Named("rl", str(student), None, "/none/routes", str(schedule), "/none/output", None)
    return compose_config(named, ["device=cpu", *overrides])
