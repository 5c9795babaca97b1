"""Configurations for tests: the shipped one with changes, never a copy of its values."""

from omegaconf import DictConfig, OmegaConf

from onepo.train import compose_config

REQUIRED = ("onepo.run_dir=/nonexistent/run", "data.train_files=/nonexistent/train.jsonl")


def compose(*overrides: str, model: str = "/nonexistent/model") -> DictConfig:
    return compose_config([*REQUIRED, f"actor_rollout_ref.model.path={model}", *overrides])


def onepo_section(**changes) -> dict:
    return {**OmegaConf.to_container(compose().onepo, resolve=True), **changes}
