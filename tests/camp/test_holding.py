"""Two runs in one output directory."""

import subprocess
import sys

import pytest

from camp.holding import hold
from onepo.errors import UserError

HOLDER = """
import sys
from pathlib import Path
from camp.holding import hold

with hold(Path(sys.argv[1])):
    print("in", flush=True)
    input()
"""


def test_the_second_one_is_told_and_the_end_of_the_first_lets_it_in(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout.readline() == "in\n"
        with pytest.raises(UserError, match="another run is writing there"):
            hold(tmp_path)
        first.kill()
    with hold(tmp_path), pytest.raises(UserError):
        hold(tmp_path)
    hold(tmp_path).close()
