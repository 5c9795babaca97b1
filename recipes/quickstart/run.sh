#!/usr/bin/env bash
# OnePO on this machine's CPU, from nothing to a trained student in a few minutes.
#   bash recipes/quickstart/run.sh                          the student learns from teacher responses
#   TEACHER_ENABLED=False bash recipes/quickstart/run.sh    the baseline: the same run without them
# Every option of OnePO.sh may be set as well; extra arguments are Hydra overrides.
set -euo pipefail
ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
PYTHON=${PYTHON:-${ROOT}/.venv/bin/python}
if ! command -v -- "${PYTHON}" >/dev/null; then
  echo "${0##*/}: error: there is no ${PYTHON}: make it with \"make setup\", or set PYTHON" >&2
  exit 2
fi

export PYTHON DEVICE=${DEVICE:-cpu} SEED=${SEED:-42}
export PYTHONPATH="${ROOT}${PYTHONPATH:+:${PYTHONPATH}}"
export OUTPUT_DIR=${OUTPUT_DIR:-${ROOT}/runs}/quickstart   # with a latest of its own
case ${TEACHER_ENABLED-} in
  [Ff]alse | 0) export EXPERIMENT_NAME=${EXPERIMENT_NAME:-baseline} ;;
  *) export EXPERIMENT_NAME=${EXPERIMENT_NAME:-onepo} ;;
esac
export MODEL_PATH=${MODEL_PATH:-${OUTPUT_DIR}/student-${SEED}}
export TRAIN_FILE=${TRAIN_FILE:-${ROOT}/recipes/quickstart/data/train.jsonl}
export VAL_FILE=${VAL_FILE:-${ROOT}/recipes/quickstart/data/val.jsonl}
# prompts have 9 tokens and the teacher's responses 9: a step is small, and all its groups are trained on
export MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-32} MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-14}
export TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-16} PPO_MINI_BATCH_SIZE=${PPO_MINI_BATCH_SIZE:-4} ROLLOUT_N=${ROLLOUT_N:-8}
export PPO_MICRO_BATCH_SIZE_PER_GPU=${PPO_MICRO_BATCH_SIZE_PER_GPU:-32}
export LOG_PROB_MICRO_BATCH_SIZE_PER_GPU=${LOG_PROB_MICRO_BATCH_SIZE_PER_GPU:-128}
export ENABLE_FILTER_GROUPS=${ENABLE_FILTER_GROUPS:-False} ENABLE_OVERLONG_BUFFER=${ENABLE_OVERLONG_BUFFER:-False}
# random weights want a large rate, and a falling one keeps what was learned
export ACTOR_LR=${ACTOR_LR:-3e-3} WEIGHT_DECAY=${WEIGHT_DECAY:-0.0}
SCHEDULE=(actor_rollout_ref.actor.optim.lr_scheduler_type=cosine actor_rollout_ref.actor.optim.min_lr_ratio=0.1)
export TOTAL_TRAINING_STEPS=${TOTAL_TRAINING_STEPS:-60} TEST_FREQ=${TEST_FREQ:-10}
export VAL_BEFORE_TRAIN=${VAL_BEFORE_TRAIN:-True} SAVE_FREQ=${SAVE_FREQ:-0}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}   # matrices of this size are slower on two threads

if [[ ! -e ${MODEL_PATH} && ${DRY_RUN-} != 1 ]]; then
  "${PYTHON}" -m recipes.quickstart.make_student "${MODEL_PATH}" "${SEED}"
fi
bash "${ROOT}/OnePO.sh" "${SCHEDULE[@]}" "$@"
if [[ ${DRY_RUN-} != 1 ]]; then "${PYTHON}" -m onepo.report.curves "${OUTPUT_DIR}/latest"; fi
