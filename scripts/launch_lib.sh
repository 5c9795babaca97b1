# shellcheck shell=bash
# What the launchers share: options, inputs, Hydra quoting, the Python to use, and a supervised run.
# Sourced with `set -euo pipefail`; the launcher sets ROOT to the repository.
source "${ROOT}/scripts/launch_options.sh"

readonly LONGEST_SOCKET_DIR=30   # Ray and the run's own name add up to 77 characters; a socket path may have 107
readonly STOP_SECONDS=60         # from a forwarded signal until the rest of the trainer's session is ended
RUN_ENV=() RAY_DIR="" TRAINER="" CAUGHT="" SIGNALS=0

# ---- inputs ----
absolute() {  # relative paths count from the caller's directory
  local name
  for name; do [[ -z ${!name} || ${!name} == /* ]] || printf -v "${name}" '%s/%s' "${PWD}" "${!name#./}"; done
}

require_path() {  # require_path -f|-d NAME WHAT; a dry run needs no inputs
  local name=$2 value=${!2} kind=file
  [[ $1 == -f ]] || kind=directory
  if [[ -z ${value} && ${DRY_RUN} == 1 ]]; then say "still to be set: ${name}"
  elif [[ -z ${value} ]]; then problem "${name} is not set: set it to $3"
  elif [[ ${DRY_RUN} != 1 ]] && ! test "$1" "${value}"; then
    problem "${name}=${value} is not an existing ${kind}: set it to $3"
  fi
}

check_run_names() {
  [[ ${EXPERIMENT_NAME} != */* ]] || problem "EXPERIMENT_NAME=${EXPERIMENT_NAME}: is the name of a folder, too, so no '/' in it"
  ((${#RAY_SOCKET_DIR} <= LONGEST_SOCKET_DIR)) || problem "RAY_SOCKET_DIR=${RAY_SOCKET_DIR}: has ${#RAY_SOCKET_DIR} \
characters, and the paths of Ray's sockets leave room for ${LONGEST_SOCKET_DIR}: set a shorter one or none"
  [[ -z ${RAY_SOCKET_DIR} || -d ${RAY_SOCKET_DIR} || ! -e ${RAY_SOCKET_DIR} ]] ||
    problem "RAY_SOCKET_DIR=${RAY_SOCKET_DIR}: is not a directory"
}

other_name() {  # other_name OPTION ALIAS: two names of one option
  local value=${!2}
  [[ -n ${value} ]] || return 0
  ! is_set "$1" || [[ ${!1} == "${value}" ]] || problem "$1=${!1} and $2=${value} are two names of one option: set one"
  printf -v "$1" '%s' "${value}"
}

plain_url() {  # plain_url OPTION KEY: a key in an address would show in logs, configurations and command lines
  [[ ${!1} != *'@'* && (${!1} != *'?'* || ${!1} =~ \?api-version=[^\&]*$) ]] ||
    problem "$1 holds a user name, a password or a query, which would be written down: give the address alone, and a \
key in $2"
}

choose_device() {
  if [[ -n ${DEVICE} ]]; then return; fi
  DEVICE=gpu
  if gpu_is_visible; then return; fi
  if [[ ${DRY_RUN} == 1 ]]; then say "no GPU is visible here: a real run needs DEVICE=cpu"
  else problem "DEVICE is not set and no GPU is visible: set DEVICE=cpu to train on the CPU"; fi
}
gpu_is_visible() {
  [[ " ${EXPORTED[*]} " != *" CUDA_VISIBLE_DEVICES "* || ${CUDA_VISIBLE_DEVICES} == [0-9A-Z]* ]] || return 1
  compgen -G '/dev/nvidia[0-9]*' >/dev/null || nvidia-smi -L >/dev/null 2>&1
}
gpu_generation() {  # the row of docs/hardware.md that belongs to the GPUs of this run, empty when it cannot be told
  local found
  found=$(nvidia-smi ${CUDA_VISIBLE_DEVICES:+--id="${CUDA_VISIBLE_DEVICES}"} --query-gpu=compute_cap \
    --format=csv,noheader 2>/dev/null | sed -E 's/^1[0-2]\..*/blackwell/; s/^9\..*/hopper/; s/^8\..*/ampere/' | sort -u) || true
  case ${found} in blackwell | hopper | ampere) printf '%s' "${found}" ;; esac
}
fixed_by() {  # fixed_by REASON NAME...
  local name
  for name in "${@:2}"; do ! is_set "${name}" || say "ignored: ${name} ($1 decides it)"; done
}

# A Hydra string that arrives unchanged: a backslash is doubled before a quote, the end and '${'; then '${' is escaped.
hq() {
  local rest=$1 done="" slashes
  while [[ ${rest} =~ ^([^\\]*)(\\+)(.*)$ ]]; do
    done+=${BASH_REMATCH[1]} slashes=${BASH_REMATCH[2]} rest=${BASH_REMATCH[3]}
    [[ -n ${rest} && ${rest} != "'"* && ${rest} != "\${"* ]] || slashes+=${slashes}
    done+=${slashes}
  done
  done+=${rest}
  done=${done//"'"/"\\'"}
  done=${done//"\${"/"\\\${"}
  printf "'%s'" "${done}"
}

text_override() {  # text_override ARRAY KEY OPTION KEY OPTION ...: adds key=value for the options that are not empty
  local -n overrides=$1
  shift
  while (($#)); do
    [[ -z ${!2} ]] || overrides+=("$1=$(hq "${!2}")")
    shift 2
  done
}

named_option() {  # named_option ARRAY --NAME OPTION ...: adds --name value for the options that are not empty
  local -n arguments=$1
  shift
  while (($#)); do
    [[ -z ${!2} ]] || arguments+=("$1" "${!2}")
    shift 2
  done
}

# ---- the run ----
run_env() { export "$1=$2"; RUN_ENV+=("$1"); }   # exported, and shown by a dry run

# shellcheck disable=SC2034  # the launcher reads it
name_run() { printf -v RUN_DIR '%s/%s-%(%Y%m%d-%H%M%S)T' "${OUTPUT_DIR%/}" "${EXPERIMENT_NAME}" -1; }

private_ray_dir() {  # Ray's sockets need a short path, and no other user may reach them; gone when the launcher ends
  local parent=${RAY_SOCKET_DIR:-/tmp}
  RAY_DIR=${parent%/}/onepo-XXXX
  [[ ${DRY_RUN} != 1 ]] || return 0
  sweep_ray_dirs "${parent%/}"
  if ! mkdir -p -- "${parent}" 2>/dev/null || ! RAY_DIR=$(mktemp -d -- "${RAY_DIR}" 2>/dev/null); then   # mode 700
    problem "RAY_SOCKET_DIR=${parent}: no directory can be made in it"
    stop_on_problems
  fi
  trap 'rm -rf -- "${RAY_DIR}"' EXIT
  exec {RAY_LOCK}>"${RAY_DIR}/launcher.new"   # locked for as long as a process of this run has it open
  if flock -n "${RAY_LOCK}" 2>/dev/null; then mv -- "${RAY_DIR}/launcher.new" "${RAY_DIR}/launcher"; fi
}

sweep_ray_dirs() {  # what launchers left that were killed together with their trainer: it may hold a key
  local found
  for found in "$1"/onepo-????; do
    if [[ -O ${found} && -f ${found}/launcher ]] && flock -n "${found}/launcher" true 2>/dev/null; then
      rm -rf -- "${found}" 2>/dev/null || true
    fi
  done
}

find_python() {
  if [[ -n ${PYTHON} ]]; then INTERPRETER=${PYTHON}; return; fi
  for INTERPRETER in "${VIRTUAL_ENV-}/bin/python" "${CONDA_PREFIX-}/bin/python" "${ROOT}/.venv/bin/python"; do
    if [[ ${INTERPRETER} != /bin/python && -x ${INTERPRETER} ]]; then return; fi
  done
  INTERPRETER=python3
}

check_python() {  # looks the packages up without importing them
  local missing requirements=${GPU_REQUIREMENTS:-requirements.txt}
  [[ ${DEVICE} == gpu ]] || requirements="requirements-cpu.txt"
  missing=$("${INTERPRETER}" -c '
import importlib.util, sys
wanted = ("onepo", "verl", "ray", "torch", "hydra") if sys.version_info >= (3, 10) else ("Python 3.10 or newer",)
missing = [name for name in wanted if " " in name or importlib.util.find_spec(name) is None]
print("missing:", ", ".join(missing))
' 2>/dev/null) || true
  if [[ ${missing} == missing:* ]]; then missing=${missing#missing:} missing=${missing# }
  else missing="a working Python"; fi   # something else answered, or nothing
  [[ -z ${missing} ]] || problem "PYTHON=${INTERPRETER} lacks ${missing}: set PYTHON to another interpreter, or run \
${INTERPRETER} -m pip install -r ${ROOT}/${requirements}  (on a CPU, make quickstart prepares ${ROOT}/.venv)"
  stop_on_problems
}

print_command() {
  local name
  for name in "${RUN_ENV[@]}"; do printf '%s=%q ' "${name}" "${!name}"; done
  printf '%q ' "${@:1:$#-1}"
  printf '%q\n' "${@: -1}"
}

raise_limit() {  # raise_limit n|u
  local current
  current=$(ulimit -S "-$1")
  [[ ${current} == unlimited || ${current} -ge 65535 ]] || ulimit -S "-$1" 65535 2>/dev/null ||
    ulimit -S "-$1" "$(ulimit -H "-$1")" 2>/dev/null || true
}

launch() {  # launch MODULE ARGUMENT...: ends the launcher with the exit code of the run
  report_changes
  if [[ ${DRY_RUN} == 1 ]]; then print_command "${INTERPRETER}" -m "$@"; exit 0; fi
  raise_limit n
  raise_limit u
  supervise "${INTERPRETER}" -m "$@"
}

# Runs a command in a process session of its own, so that everything it started can be found and ended afterwards.
supervise() {
  local status=0 signal deadline
  # shellcheck disable=SC2064  # the name is meant to be expanded now
  for signal in HUP INT TERM; do trap "forward ${signal}" "${signal}"; done
  # a background command starts with INT and QUIT ignored; the subshell undoes that and becomes the command
  (trap - INT QUIT; exec setsid "$@") &
  TRAINER=$!
  [[ -z ${CAUGHT} ]] || kill -s "${CAUGHT}" "${TRAINER}" 2>/dev/null || true   # it came before TRAINER was known
  wait "${TRAINER}" || status=$?
  if [[ -n ${CAUGHT} ]]; then   # `wait` returned for the signal: the trainer gets time to end by itself
    status=$((128 + $(kill -l "${CAUGHT}"))) deadline=$((SECONDS + STOP_SECONDS))
    while ((SIGNALS < 2 && SECONDS < deadline)) && kill -0 "${TRAINER}" 2>/dev/null; do sleep 0.1; done
  fi
  end_session "${TRAINER}"
  exit "${status}"
}

forward() {  # a second signal ends the waiting
  CAUGHT=$1 SIGNALS=$((SIGNALS + 1))
  [[ -z ${TRAINER} ]] || kill -s "$1" "${TRAINER}" 2>/dev/null || true
}

session_members() {  # living processes of session $1, from "pid (name) state parent group session ..."
  local file line
  for file in /proc/[0-9]*/stat; do
    { read -r line <"${file}"; } 2>/dev/null || continue
    [[ ! ${line##*) } =~ ^[^XZ]\ [0-9]+\ [0-9]+\ $1\  ]] || printf '%s\n' "${line%% *}"
  done
}

end_session() {
  local signal members tenths
  for signal in TERM KILL; do
    for ((tenths = 0; tenths < 30; tenths++)); do
      mapfile -t members < <(session_members "$1")
      ((${#members[@]})) || return 0
      ((tenths)) || kill -s "${signal}" "${members[@]}" 2>/dev/null || true
      sleep 0.1
    done
  done
}
