#!/usr/bin/env bash
# Qwen3-8B-Base on the medical data, on 8 GPUs. The settings are the defaults of OnePO.sh: they are this recipe's.
#   MODEL_PATH=/models/Qwen3-8B-Base REWARD_MODEL_PATH=/models/HuatuoGPT-3-Grader-8B bash recipes/onepo_medical/run.sh
# Every option of OnePO.sh may be set as well; extra arguments are Hydra overrides. README.md says what to prepare.
set -euo pipefail
ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)

export OUTPUT_DIR=${OUTPUT_DIR:-${ROOT}/runs}/onepo_medical   # with a latest of its own
export EXPERIMENT_NAME=${EXPERIMENT_NAME:-qwen3-8b-base}
export TRAIN_FILE=${TRAIN_FILE:-${OUTPUT_DIR}/data/train.jsonl}   # where convert.py was told to write
export VAL_FILE=${VAL_FILE:-${OUTPUT_DIR}/data/val.jsonl}
exec bash "${ROOT}/OnePO.sh" "$@"
