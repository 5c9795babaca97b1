# shellcheck shell=bash
# What the engines' setup scripts share; sourced with `set -euo pipefail`.
readonly ENGINES=${BASH_SOURCE[0]%/*}

die() { printf '%s: error: %s\n' "${0##*/}" "$*" >&2; exit 2; }
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# make_environment DIRECTORY SUMMARY SOURCE...: an empty environment, unless there is a finished one made of the SOURCEs
# at this very place (its scripts name it): then it ends the script. PYTHON and PIP are commands of the environment,
# isolated from the caller's Python settings.
make_environment() {
  (($# > 1)) && [[ -n $1 ]] || die "name the directory of the environment"
  ENVIRONMENT=$1 SOURCES=("$0" "${ENGINES}/environment.sh" "${@:3}")
  PYTHON=("${ENVIRONMENT}/bin/python" -I)
  PIP=("${PYTHON[@]}" -m pip --disable-pip-version-check install -qq --no-deps)
  if [[ -f ${ENVIRONMENT}/.stamp ]] && fingerprint 2>/dev/null | cmp -s - "${ENVIRONMENT}/.stamp"; then exit 0; fi
  [[ ! -e ${ENVIRONMENT} || -f ${ENVIRONMENT}/pyvenv.cfg || -z $(ls -A "${ENVIRONMENT}") ]] ||
    die "${ENVIRONMENT} exists and is no virtual environment: name another directory, or remove it"
  command -v python3.11 >/dev/null || die "there is no python3.11, which the pinned packages need: install it"
  say "makes ${ENVIRONMENT}: $2"
  python3.11 -m venv --clear "${ENVIRONMENT}"
  [[ -z ${TORCH_INDEX_URL-} ]] || PIP+=(--extra-index-url "${TORCH_INDEX_URL}")
}

finish_environment() {
  fingerprint >"${ENVIRONMENT}/.stamp"
  say "ready: ${ENVIRONMENT}/bin/python"
}

fingerprint() { "${PYTHON[@]}" -c 'import sys; print(sys.prefix, sys.version)' && cat "${SOURCES[@]}" | sha256sum; }

site_packages() { "${PYTHON[@]}" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
