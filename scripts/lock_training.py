"""Makes requirements.lock: what requirements-training.txt resolves to. Metadata only; nothing of it is installed.

python -m pip install uv
python scripts/lock_training.py                      # uv fetches verl's commit with git
python scripts/lock_training.py --verl DIRECTORY     # a checkout of that commit, where git cannot fetch it
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements-training.txt"
LOCK = ROOT / "requirements.lock"
PYTHON = "3.12"
PLATFORM = "x86_64-manylinux_2_34"  # the oldest one that every pinned wheel supports

HEADER = f"""\
# The versions of the training environment: what requirements-training.txt resolves to for Python {PYTHON} on Linux,
# x86-64 (glibc 2.34 or newer). Made by scripts/lock_training.py from the packages' own metadata, not by hand and not
# from an installation; verl's requirements are those of its setup.py at the commit.
"""


def training_requirements() -> list[str]:
    """The lines of requirements-training.txt without the lock itself."""
    lines = (line.strip() for line in REQUIREMENTS.read_text().splitlines())
    return [line for line in lines if line and not line.startswith(("#", "-c"))]


def require_commit(checkout: Path, commit: str) -> None:
    head = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True)
    if head.stdout.strip() != commit:
        found = head.stdout.strip() or head.stderr.strip()
        sys.exit(f"error: --verl {checkout}: not a checkout of {commit}\n  found: {found}")


def resolve(requirements: list[str]) -> list[str]:
    """One exact requirement a line, sorted by name."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}") or shutil.which("uv")
    if uv is None:
        sys.exit(f"error: uv is missing: {sys.executable} -m pip install uv")
    options = ["--python-version", PYTHON, "--python-platform", PLATFORM, "--no-header", "--no-annotate", "--quiet"]
    solved = subprocess.run(
        [uv, "pip", "compile", *options, "-"], input="\n".join(requirements), stdout=subprocess.PIPE, text=True
    )
    if solved.returncode:
        sys.exit("error: uv found no solution; its words are above")
    return solved.stdout.splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verl", type=Path, metavar="DIRECTORY", help="a checkout of the pinned commit")
    checkout = parser.parse_args().verl

    requirements = training_requirements()
    (verl,) = (line for line in requirements if line.startswith("verl @ "))
    if checkout:
        require_commit(checkout, commit=verl.rpartition("@")[2])
        local = f"verl @ {checkout.resolve().as_uri()}"
        requirements[requirements.index(verl)] = local

    solved = resolve(requirements)
    pinned = [verl if line.startswith("verl @ ") else line for line in solved]
    LOCK.write_text(HEADER + "\n".join(pinned) + "\n")
    print(f"{LOCK.name}: {len(pinned)} packages")


if __name__ == "__main__":
    main()
