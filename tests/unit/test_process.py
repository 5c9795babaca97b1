"""Where a run puts what belongs to it alone."""

import shutil
import tempfile
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from onepo.process import choose_ray


@pytest.mark.parametrize(("name", "fits"), [("short", True), ("a folder whose name is long" * 3, False)])
def test_the_paths_of_rays_sockets_stay_short_enough(name, fits, monkeypatch, request):
    place = tempfile.mkdtemp(dir="/tmp", prefix="t-")
    request.addfinalizer(lambda: shutil.rmtree(place))
    Path(place, name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", f"{place}/{name}")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    chosen = choose_ray(OmegaConf.create({"ray_kwargs": {"ray_init": {}}}), None)
    request.addfinalizer(lambda: shutil.rmtree(chosen))
    assert (chosen.startswith(f"{place}/") is fits) and len(chosen) <= 30 + len("/onepo-12345678")
