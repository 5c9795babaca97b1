#!/usr/bin/env bash
# Linux only. Makes an environment: checks the machine, installs exact versions into a virtual environment.
#   bash scripts/setup_env.sh [DIRECTORY [REQUIREMENTS]]     default .venv requirements-cpu.txt, the CPU environment;
#                                                            returns at once when it is up to date
#   PYTHON=/path/to/python                    the Python to build it from (3.11 or 3.12)
#   TORCH_INDEX_URL=https://...               an additional package index, for CPU-only PyTorch wheels
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
VENV=${1:-.venv}
REQUIREMENTS=${2:-requirements-cpu.txt}
STAMP=${VENV}/.onepo-stamp
GIB=$((1024 * 1024))   # in KiB, the unit of df and /proc/meminfo

die() { printf 'setup: error: %s\n' "$*" >&2; exit 2; }
say() { printf 'setup: %s\n' "$*"; }

usable() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; }

find_python() {
  local candidate
  if [[ -n ${PYTHON-} ]]; then
    usable "${PYTHON}" || die "PYTHON=${PYTHON} is not a Python 3.11 or 3.12, which the pinned packages need"
    return
  fi
  for candidate in python3.11 "${HOME}"/.pyenv/versions/3.11*/bin/python python3.12 \
    "${HOME}"/.pyenv/versions/3.12*/bin/python python3; do
    PYTHON=${candidate}
    if usable "${PYTHON}"; then return; fi
  done
  die "no Python 3.11 or 3.12 found: install one, or set PYTHON=/path/to/python3.11"
}

require_room() {  # require_room WHAT FREE_KIB NEEDED_GIB HINT
  (($2 >= $3 * GIB)) || die "$1 has $(($2 / 1024)) MiB free and needs $(($3 * 1024)): $4"
}
free_disk() { df -Pk "$1" | awk 'NR == 2 { print $4 }'; }

check_machine() {
  "${PYTHON}" -c 'import ensurepip, venv' 2>/dev/null ||
    die "${PYTHON} has no venv module: install it (on Debian and Ubuntu the package pythonX.Y-venv), or set PYTHON"
  require_room "the disk of ${PWD}" "$(free_disk .)" 6 "make room or clone the repository elsewhere"
  require_room memory "$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)" 6 "close other programs"
  require_room /dev/shm "$(free_disk /dev/shm)" 1 "enlarge it (in a container: docker run --shm-size=2g)"
}

# What an environment is made of, its place included (its scripts name it); only a finished one has a stamp.
fingerprint() {
  "${VENV}/bin/python" -c 'import sys; print(sys.prefix, sys.version)' &&
    cat "${REQUIREMENTS}" setup.py pyproject.toml | sha256sum
}

[[ $(uname -s) == Linux ]] || die "this runs on Linux only, and this is $(uname -s)"
if [[ -f ${STAMP} ]] && fingerprint 2>/dev/null | cmp -s - "${STAMP}"; then exit 0; fi

# an unfinished environment is made anew, but a directory that is none is not emptied
[[ ! -d ${VENV} || -f ${VENV}/pyvenv.cfg || ${VENV} == .venv || -z $(ls -A "${VENV}") ]] ||
  die "${VENV} exists and is no virtual environment: name another directory"
find_python
check_machine
say "$("${PYTHON}" --version) at $(type -P "${PYTHON}")"
if [[ ${REQUIREMENTS} == requirements-cpu.txt ]]; then
  say "downloads about 0.5 GB into ${VENV} (2.2 GB on disk). Where the package index serves PyTorch with CUDA, several GB"
  say "more: set TORCH_INDEX_URL to an index of CPU wheels to avoid that. This takes a few minutes, once."
else
  say "downloads about 0.3 GB into ${VENV} (1 GB on disk). This takes a minute or two, once."
fi
"${PYTHON}" -m venv --clear "${VENV}"
PIP=("${VENV}/bin/python" -m pip --disable-pip-version-check install --quiet)
"${PIP[@]}" ${TORCH_INDEX_URL:+--extra-index-url "${TORCH_INDEX_URL}"} -r "${REQUIREMENTS}"
# the services find their package by its path: they are not to see what else is installed here
[[ ${REQUIREMENTS} != requirements-cpu.txt ]] || "${PIP[@]}" --no-deps --no-build-isolation -e .
fingerprint >"${STAMP}"
say "ready: ${VENV}/bin/python"
