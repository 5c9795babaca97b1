#!/usr/bin/env bash
# CAMP RL on this machine's CPU: a small student learns a game and a quest in services that run here, in a few minutes.
#   bash recipes/camp_quickstart/run.sh
#   SEED=1 TOTAL_UPDATES=60 bash recipes/camp_quickstart/run.sh    another student, another order, a shorter run
# Every option of CAMP_RL.sh may be set as well; extra arguments are Hydra overrides.
set -euo pipefail
ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
PYTHON=${PYTHON:-${ROOT}/.venv/bin/python}
if ! command -v -- "${PYTHON}" >/dev/null; then
  echo "${0##*/}: error: there is no ${PYTHON}: make it with \"make setup\", or set PYTHON" >&2
  exit 2
fi

export PYTHON DEVICE=${DEVICE:-cpu} SEED=${SEED:-42}
export PYTHONPATH="${ROOT}:${ROOT}/recipes${PYTHONPATH:+:${PYTHONPATH}}"
export EXPERIMENT_NAME=${EXPERIMENT_NAME:-$(date +%Y%m%d-%H%M%S)}
HOME_OF_RUNS=${OUTPUT_DIR:-${ROOT}/runs}/camp-quickstart
export OUTPUT_DIR=${HOME_OF_RUNS}/${EXPERIMENT_NAME}
PREPARED=${HOME_OF_RUNS}/prepared-${EXPERIMENT_NAME}
export ROUTES=${ROUTES:-${PREPARED}/routes.json} SCHEDULE=${SCHEDULE:-${PREPARED}/train_schedule.jsonl}
export STUDENT_PATH=${STUDENT_PATH:-${HOME_OF_RUNS}/student-${SEED}}
export TOTAL_UPDATES=${TOTAL_UPDATES:-120} EPISODES_PER_UPDATE=${EPISODES_PER_UPDATE:-32}
export WARMUP_BATCHES=${WARMUP_BATCHES:-1} SAVE_FREQ=${SAVE_FREQ:-40}
# rules are one token each, and so is the name of a thing: episodes are short
export MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-128} MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-512}
export PPO_MAX_TOKEN_LEN_PER_GPU=${PPO_MAX_TOKEN_LEN_PER_GPU:-8192}
export ACTOR_LR=${ACTOR_LR:-5e-4} CRITIC_LR=${CRITIC_LR:-1e-3}   # small models want large rates
CRITIC_FIRST=(trainer.critic_warmup=8)   # the actor waits until the critic knows something
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}   # matrices of this size are slower on two threads

if [[ ! -e ${ROUTES} && ${DRY_RUN-} != 1 ]]; then
  "${PYTHON}" -m camp.routes prepare --out "${PREPARED}" --seed "${SEED}" \
    --domain games --domain quests --tasks games=lake_4 --tasks quests=room \
    --turns games=10 --turns quests=8 --turn-tokens 8 --first-port "${FIRST_PORT:-18731}" \
    --updates "${TOTAL_UPDATES}" --episodes "${EPISODES_PER_UPDATE}" --warmup "${WARMUP_BATCHES}"
fi
if [[ ! -e ${STUDENT_PATH} && ${DRY_RUN-} != 1 ]]; then
  "${PYTHON}" -m recipes.camp_quickstart.make_student "${STUDENT_PATH}" "${ROUTES}" "${SEED}"
fi
bash "${ROOT}/CAMP_RL.sh" "${CRITIC_FIRST[@]}" "$@"
if [[ ${DRY_RUN-} != 1 ]]; then "${PYTHON}" -m onepo.report.curves "${OUTPUT_DIR}"; fi
