# shellcheck shell=bash
# What CAMP's quickstarts share: sizes for a small model in two services, routes and schedule, the student.
# Sourced with `set -euo pipefail`; the script sets ROOT to the repository.
PYTHON=${PYTHON:-${ROOT}/.venv/bin/python}
if ! command -v -- "${PYTHON}" >/dev/null; then
  echo "${0##*/}: error: there is no ${PYTHON}: make it with \"make setup\", or set PYTHON" >&2
  exit 2
fi

# begin_quickstart NAME: the defaults of the run, whose directory is OUTPUT_DIR/NAME/EXPERIMENT_NAME
begin_quickstart() {
  export PYTHON DEVICE=${DEVICE:-cpu} SEED=${SEED:-42}
  export PYTHONPATH="${ROOT}:${ROOT}/recipes${PYTHONPATH:+:${PYTHONPATH}}"
  export EXPERIMENT_NAME=${EXPERIMENT_NAME:-$(date +%Y%m%d-%H%M%S)}
  HOME_OF_RUNS=${OUTPUT_DIR:-${ROOT}/runs}/$1
  export OUTPUT_DIR=${HOME_OF_RUNS}/${EXPERIMENT_NAME}
  PREPARED=${HOME_OF_RUNS}/prepared-${EXPERIMENT_NAME}
  export ROUTES=${ROUTES:-${PREPARED}/routes.json} SCHEDULE=${SCHEDULE:-${PREPARED}/train_schedule.jsonl}
  export STUDENT_PATH=${STUDENT_PATH:-${HOME_OF_RUNS}/student-${SEED}}
  export TOTAL_UPDATES=${TOTAL_UPDATES:-120} EPISODES_PER_UPDATE=${EPISODES_PER_UPDATE:-32}
  export WARMUP_BATCHES=${WARMUP_BATCHES:-1} SAVE_FREQ=${SAVE_FREQ:-40}
  # rules are one token each, and so is the name of a thing: episodes are short
  export MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-128} MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-512}
  export PPO_MAX_TOKEN_LEN_PER_GPU=${PPO_MAX_TOKEN_LEN_PER_GPU:-8192}
  export ACTOR_LR=${ACTOR_LR:-5e-4}              # small models want large rates
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}   # matrices of this size are slower on two threads

  if [[ ! -e ${ROUTES} && ${DRY_RUN-} != 1 ]]; then
    "${PYTHON}" -m camp.routes prepare --out "${PREPARED}" --seed "${SEED}" \
      --domain games --domain quests --tasks games=lake_4 --tasks quests=room \
      --turns games=10 --turns quests=8 --turn-tokens 8 --first-port "${FIRST_PORT:-18731}" \
      --updates "${TOTAL_UPDATES}" --episodes "${EPISODES_PER_UPDATE}" --warmup "${WARMUP_BATCHES}"
  fi
  make_model student "${STUDENT_PATH}"
}

make_model() {  # make_model student|teacher DIRECTORY
  [[ -e $2 || ${DRY_RUN-} == 1 ]] || "${PYTHON}" -m recipes.camp_quickstart.make_model "$1" "$2" "${ROUTES}" "${SEED}"
}
