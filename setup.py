"""Installs the packages ``onepo`` and ``camp``. No extra pins an inference engine: each brings its own PyTorch."""

from setuptools import find_packages, setup

setup(
    name="onepo",
    version="0.1.0",
    description="OnePO and CAMP: teacher-guided reinforcement learning of language models, as a plugin for verl",
    license="Apache-2.0",
    python_requires=">=3.10",
    packages=[*find_packages(include=["onepo", "onepo.*"]), *find_packages("recipes", include=["camp", "camp.*"])],
    package_dir={"camp": "recipes/camp"},
    package_data={
        "onepo.config": ["*.yaml", "*/*.yaml"],
        "onepo.rewards": ["grading_prompt.txt"],
        "camp.config": ["*.yaml", "*/*.yaml"],
        "camp.opd": ["recipe.yaml"],
        "camp.rl": ["recipe.yaml"],
        "camp.sampling": ["agents.yaml"],
    },
    install_requires=[
        "aiohttp",
        "hydra-core>=1.3",
        "omegaconf>=2.3",
        "psutil",
        "pyarrow>=19",
        "pydantic>=2",
        "rich",
        "tenacity",
        "typer",
    ],
    extras_require={"report": ["matplotlib"], "swanlab": ["swanlab"]},
    entry_points={"verl.plugins": ["onepo = onepo.plugin"]},
)
