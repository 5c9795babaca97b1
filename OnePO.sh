#!/usr/bin/env bash
# Train a student with OnePO. Linux only.
#   MODEL_PATH=/models/student TRAIN_FILE=/data/train.json VAL_FILE=/data/val.json bash OnePO.sh
#   DRY_RUN=1 TRAIN_BATCH_SIZE=64 bash OnePO.sh           print the command, start nothing
#   bash OnePO.sh trainer.total_training_steps=2          extra arguments are Hydra overrides; they win
#   bash OnePO.sh --help                                  every option with its default
set -euo pipefail
ROOT=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
source "${ROOT}/scripts/launch_lib.sh"

# ---- options: environment variables of these names; unset or empty means the default ----
group "Inputs"
option MODEL_PATH "" "Student model: a directory with config, tokenizer, chat template and weights."
option TRAIN_FILE "" "Training data: a JSON array, JSONL or Parquet file."
option VAL_FILE "" "Validation data of the same schema; needed unless validation is switched off."
option REWARD_MODEL_PATH "" "Grader model for open-ended data, started locally."

group "Run"
option DEVICE "" "cpu or gpu; empty means gpu if a GPU is visible, else the launcher stops."
option PYTHON "" "Python interpreter; empty means the active environment, else .venv, else python3."
option DRY_RUN 0 "1 prints the exact command and starts nothing."
option SEED 42 "Seed of data order, teacher draws and the learner; on the CPU also of sampling."
option OUTPUT_DIR runs "Parent of the run directories EXPERIMENT_NAME-TIMESTAMP."
option PROJECT_NAME OnePO "Project name for the loggers."
option EXPERIMENT_NAME OnePO_Qwen3_8B "Experiment name for the loggers and for the run directory."
option CHECKPOINT_DIR "" "Checkpoints; empty means checkpoints/ in the run directory."
option LOGS_DIR "" "Log files; empty means logs/ in the run directory."
option OUTPUTS_DIR "" "Validation generations; empty means validation/ in the run directory."
option SWANLAB_DIR "" "SwanLab files; empty means swanlab/ in the run directory."
option HYDRA_OUTPUT_DIR "" "The resolved configuration; empty means config/ in the run directory."
option TMP_DIR "" "Directory for temporary files (exported as TMPDIR); empty means the system's."
option RAY_SOCKET_DIR "" "Short parent (at most 30 characters) of the run's private Ray directory; empty means /tmp."
option LOGGER "[console]" "List of loggers, for example [console,swanlab]."

group "Training"
option TRAIN_BATCH_SIZE 128 "Prompts per training step."
option PPO_MINI_BATCH_SIZE 16 "Prompts per actor update."
option ROLLOUT_N 8 "Responses generated per prompt."
option ACTOR_LR 2e-6 "Learning rate of the actor."
option LR_WARMUP_STEPS 1 "Warm-up steps of the learning rate."
option WEIGHT_DECAY 0.1 "Weight decay of the actor."
option MAX_PROMPT_LENGTH 4000 "Token limit of a prompt; longer prompts are left out with a count."
option MAX_RESPONSE_LENGTH 8000 "Token limit of a response."
option TOTAL_EPOCHS 5 "Passes over the training data; the run ends here or at TOTAL_TRAINING_STEPS."
option TOTAL_TRAINING_STEPS 500 "Training steps; the run ends here or at TOTAL_EPOCHS, whichever is first."

group "Batching"
option USE_DYNAMIC_BSZ False "Fill micro-batches by tokens instead of by rows."
option PPO_MICRO_BATCH_SIZE_PER_GPU 1 "Rows per micro-batch of an actor update."
option LOG_PROB_MICRO_BATCH_SIZE_PER_GPU 1 "Rows per micro-batch when log-probabilities are computed."
option PPO_MAX_TOKEN_LEN_PER_GPU 12000 "Tokens per micro-batch with USE_DYNAMIC_BSZ=True."
option DATALOADER_NUM_WORKERS 0 "Loader processes; 0 loads in the trainer."

group "OnePO"
option TEACHER_ENABLED True "Use teacher responses; False is the baseline, plain clipped GRPO."
option PROBABILITY_FLOOR 0.1 "Floor under the old probability of teacher tokens."
option TEACHER_MAX_STEPS -1 "The last step in which the teacher takes part; 0 means none, -1 no limit."
option RETIREMENT_PLATEAU_WINDOW -1 "Retirement rates compared; the teacher stops when they are flat; -1: never."
option RETIREMENT_PLATEAU_TOLERANCE 0.01 "Largest difference between two of these rates that counts as flat."
option RETIREMENT_PLATEAU_MIN_RATE 0.9 "Smallest rate at which a plateau counts."

group "Online teacher"
option ONLINE_TEACHER_ENABLED False "Ask a served model for prompts without a teacher response."
option TEACHER_MODEL "" "Name of the served teacher."
option ONEPO_TEACHER_MODEL "" "Another name of TEACHER_MODEL."
option TEACHER_API_URL "" "URL of the teacher; /chat/completions is appended when absent."
option ONEPO_TEACHER_API_URL "" "Another name of TEACHER_API_URL."
option ONEPO_TEACHER_API_KEY "" "API key of the teacher; never printed, never an argument."
option TEACHER_MAX_TOKENS 8192 "Token limit of a teacher answer."
option TEACHER_MAX_CONCURRENCY 64 "Teacher requests at the same time."
option TEACHER_TIMEOUT 180 "Seconds until a teacher request is given up."
option TEACHER_MAX_RETRIES 3 "Further attempts at a question after a time-out or a server error."
option TEACHER_OUTAGE_LIMIT 600 "Seconds to wait for a teacher that is away, once in an outage."
option TEACHER_ANSWERS_DIR "" "Where answers are kept and used again; empty means teacher_answers/ in OUTPUT_DIR."

group "Dynamic sampling and reward shaping"
option ENABLE_FILTER_GROUPS True "Leave out groups whose responses all score the same and sample others."
option FILTER_GROUPS_METRIC acc "What the filter compares: acc, score, overlong_penalty or answer_length_penalty."
option MAX_NUM_GEN_BATCHES 20 "Generation batches per step before the run stops; 0 or less means no limit."
option ENABLE_OVERLONG_BUFFER True "Subtract a penalty from responses that end close to the length limit."
option OVERLONG_BUFFER_LEN 4000 "Tokens before the length limit in which that penalty grows."
option OVERLONG_PENALTY_FACTOR 0.6 "Penalty at the length limit."
option ANSWER_EXPECTED_TOKENS 200 "Tokens that a final answer may have without a penalty."
option ANSWER_BUFFER_TOKENS 4000 "Further tokens over which the penalty of a long answer grows."
option ANSWER_PENALTY_FACTOR 0.0 "Largest penalty of a long final answer; 0 switches it off."
option ANSWER_MARKER "## Final Response" "Text before a line with this marker counts as thinking."
option REQUIRE_THINKING false "Score 0 for a response without a closed think block."

group "Hardware and rollout"
option CUDA_VISIBLE_DEVICES "" "GPUs to use; empty means all."
option NNODES 1 "Machines."
option NGPUS_PER_NODE 8 "GPUs per machine; with DEVICE=cpu learner processes, 1 unless set."
option SP_SIZE 1 "Ranks that share one sequence in the learner (Ulysses)."
option PARAM_OFFLOAD True "Keep the actor's parameters in CPU memory while they are idle."
option OPTIMIZER_OFFLOAD True "Keep the optimizer's state in CPU memory while it is idle."
option INFER_BACKEND sglang "Inference engine: sglang or vllm."
option ROLLOUT_TP 1 "GPUs per copy of the inference engine."
option ROLLOUT_GPU_MEMORY_UTILIZATION 0.60 "Share of GPU memory for the inference engine."

group "Validation and checkpoints"
option TEST_FREQ 30 "Steps between validations; 0 means only TEST_STEPS."
option TEST_STEPS "[]" "Steps with an additional validation, for example [50,100]."
option VAL_BEFORE_TRAIN False "Validate before the first step."
option VAL_N 1 "Responses per validation prompt."
option VAL_TEMPERATURE 0.7 "Sampling temperature of validation."
option SAVE_FREQ 60 "Steps between checkpoints."
option MAX_ACTOR_CHECKPOINTS 5 "Newest checkpoints that are kept."
option SAVE_TRAINING_STATE False "Keep in checkpoints what RESUME needs; four times their size."
option RESUME "" "Checkpoint, or run with one, to go on from; its data, sizes and seed must be the same."
option ROLLOUT_DUMP_FREQ 0 "Steps between two dumps of rollouts for python -m onepo.show; 0 means none."
option ROLLOUT_DUMP_SAMPLES 4 "Prompts in a dump, each with all its rollouts."
option LOG_VAL_GENERATIONS 20 "Validation generations sent to the loggers."

group "Grader"
option START_REWARD_SERVER 1 "1 starts a local grader where the data needs one; 0 uses the one at REWARD_MODEL_URL."
option REWARD_MODEL_URL "" "URL of a grader that is already running, up to /v1 or in full."
option REWARD_MODEL_NAME "" "Name of the served model; needed with START_REWARD_SERVER=0, else grader unless set."
option REWARD_MODEL_API_KEY "" "Key of a grader that wants one; never printed, never an argument."
option REWARD_MODEL_EXTRA_BODY '{"chat_template_kwargs": {"enable_thinking": false}}' "JSON fields added to each request."
option REWARD_MODEL_TIMEOUT 120 "Seconds until a grading request is given up."
option REWARD_MODEL_MAX_TOKENS 256 "Token limit of a grading."
option REWARD_MODEL_MAX_RETRIES 2 "Further attempts of a failed grading."
option REWARD_MODEL_MAX_CONCURRENCY 256 "Grading requests of the whole run at the same time."
option REWARD_MODEL_OUTAGE_LIMIT 600 "Seconds for which the grader may be gone without harm."
option REWARD_MAX_FAILURE_RATE 0.2 "Largest share of failed gradings in a step; above it the run saves and stops."
option REWARD_PROMPT_FILE "" "Grading prompt with {conversation} and {rubrics}; empty means the built-in one."

group "Own reward"
option REWARD_FUNCTION "" "file.py:function that scores records of the type custom."
option REWARD_FUNCTION_TIMEOUT 30 "Seconds until a call of it is given up."
option REWARD_FUNCTION_WORKERS 2 "Processes that run it."

group "Local grader"
option REWARD_SERVER_BACKEND sglang "Engine that serves it: sglang or vllm."
option REWARD_SERVER_PYTHON "" "Python of the environment that has this engine; empty means that of the run."
option REWARD_SERVER_HOST 127.0.0.1 "Address it binds to; learners on other machines need one that they can reach."
option REWARD_MODEL_PORT 30001 "Its port."
option REWARD_MODEL_DP 4 "Copies of it; one on the CPU."
option REWARD_MODEL_TP 2 "GPUs per copy."
option REWARD_MODEL_MEM_FRACTION 0.15 "Share of GPU memory for it."
option REWARD_MODEL_GPUS "" "Its GPUs, for example 6,7; empty means those of the run."
option REWARD_MODEL_CHAT_TEMPLATE "" "File with a chat template in place of its own."
option REWARD_MODEL_EXTRA_ARGS "" "Further arguments of the engine's server, as in a shell."
option REWARD_SERVER_START_TIMEOUT 900 "Seconds until a start that does not get healthy is given up."
option REWARD_SERVER_MAX_RESTARTS 3 "Restarts of a grader that ended by itself, over the whole run."
option AUTO_KILL_REWARD_SERVER 1 "1 stops it when training ends."
# ---- end of the options ----

own_prefixes ACTOR_ ANSWER_ DATALOADER_ FILTER_GROUPS_ INFER_ LOG_PROB_ LR_ MAX_PROMPT_ MAX_RESPONSE_ MODEL_ ONEPO_ \
  ONLINE_TEACHER_ OPTIMIZER_ OVERLONG_ PPO_ PROB RETIREMENT_ REWARD_ ROLLOUT_ TEACHER_ TEST_ TOTAL_ \
  TRAIN_ VAL_

read_arguments "$@"
one_of DRY_RUN 0 1
one_of DEVICE cpu gpu
one_of INFER_BACKEND sglang vllm
one_of START_REWARD_SERVER 0 1
one_of AUTO_KILL_REWARD_SERVER 0 1
one_of REWARD_SERVER_BACKEND sglang vllm
other_name TEACHER_MODEL ONEPO_TEACHER_MODEL
other_name TEACHER_API_URL ONEPO_TEACHER_API_URL
check_options
stop_on_problems
absolute MODEL_PATH TRAIN_FILE VAL_FILE OUTPUT_DIR CHECKPOINT_DIR LOGS_DIR OUTPUTS_DIR SWANLAB_DIR HYDRA_OUTPUT_DIR \
  TMP_DIR RAY_SOCKET_DIR REWARD_MODEL_PATH REWARD_MODEL_CHAT_TEMPLATE REWARD_PROMPT_FILE \
  REWARD_FUNCTION TEACHER_ANSWERS_DIR RESUME
[[ ${REWARD_SERVER_PYTHON} != */* ]] || absolute REWARD_SERVER_PYTHON
check_run_names
choose_device
[[ ${DEVICE} == gpu ]] || is_set NGPUS_PER_NODE || NGPUS_PER_NODE=1
plain_url REWARD_MODEL_URL REWARD_MODEL_API_KEY
plain_url TEACHER_API_URL ONEPO_TEACHER_API_KEY
stop_on_problems
[[ ${START_REWARD_SERVER} == 1 ]] || fixed_by "START_REWARD_SERVER=0" REWARD_MODEL_PATH REWARD_SERVER_BACKEND \
  REWARD_SERVER_PYTHON REWARD_MODEL_DP REWARD_MODEL_TP REWARD_MODEL_GPUS REWARD_MODEL_EXTRA_ARGS
require_path -d MODEL_PATH "a directory with the student model"
require_path -f TRAIN_FILE "the training data"
if [[ ${VAL_BEFORE_TRAIN} == True || ${TEST_FREQ} -gt 0 || ${TEST_STEPS} == *[0-9]* ]]; then
  require_path -f VAL_FILE "the validation data, or TEST_FREQ=0 TEST_STEPS='[]' to train without validation"
else
  [[ -z ${VAL_FILE} ]] || say "validation is off: VAL_FILE is not read"
  VAL_FILE=
fi
stop_on_problems

name_run
run_env PYTHONPATH "${ROOT}${PYTHONPATH:+:${PYTHONPATH}}"   # a clone works without being installed
run_env RAY_USAGE_STATS_ENABLED 0                           # nothing about a run leaves the machine
run_env TOKENIZERS_PARALLELISM "${TOKENIZERS_PARALLELISM:-true}"
run_env SWANLAB_LOG_DIR "${SWANLAB_DIR:-${SWANLAB_LOG_DIR:-${RUN_DIR}/swanlab}}"
run_env TENSORBOARD_DIR "${TENSORBOARD_DIR:-${RUN_DIR}/tensorboard}"
[[ -z ${TMP_DIR} ]] || run_env TMPDIR "${TMP_DIR}"
[[ -z ${CUDA_VISIBLE_DEVICES} ]] || run_env CUDA_VISIBLE_DEVICES "${CUDA_VISIBLE_DEVICES}"
find_python
[[ ${DRY_RUN} == 1 ]] || check_python

RUN=(device="${DEVICE}" onepo.run_dir="$(hq "${RUN_DIR}")" onepo.seed="${SEED}")
if [[ -z ${RAY_ADDRESS-} ]]; then   # else the run joins the cluster that RAY_ADDRESS names
  private_ray_dir
  RUN+=(onepo.ray_dir="$(hq "${RAY_DIR}")")
fi
text_override RUN onepo.logs_dir LOGS_DIR onepo.config_dir HYDRA_OUTPUT_DIR
DATA=(
  data.train_batch_size="${TRAIN_BATCH_SIZE}"
  data.max_prompt_length="${MAX_PROMPT_LENGTH}"
  data.max_response_length="${MAX_RESPONSE_LENGTH}"
  data.dataloader_num_workers="${DATALOADER_NUM_WORKERS}"
)
text_override DATA data.train_files TRAIN_FILE data.val_files VAL_FILE
MODEL=()
text_override MODEL actor_rollout_ref.model.path MODEL_PATH
ACTOR=(
  actor_rollout_ref.actor.ppo_mini_batch_size="${PPO_MINI_BATCH_SIZE}"
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu="${PPO_MICRO_BATCH_SIZE_PER_GPU}"
  actor_rollout_ref.actor.use_dynamic_bsz="${USE_DYNAMIC_BSZ}"
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu="${PPO_MAX_TOKEN_LEN_PER_GPU}"
  actor_rollout_ref.actor.ulysses_sequence_parallel_size="${SP_SIZE}"
  actor_rollout_ref.actor.optim.lr="${ACTOR_LR}"
  actor_rollout_ref.actor.optim.lr_warmup_steps="${LR_WARMUP_STEPS}"
  actor_rollout_ref.actor.optim.weight_decay="${WEIGHT_DECAY}"
)
ROLLOUT=(
  actor_rollout_ref.rollout.n="${ROLLOUT_N}"
  actor_rollout_ref.rollout.tensor_model_parallel_size="${ROLLOUT_TP}"
  actor_rollout_ref.rollout.gpu_memory_utilization="${ROLLOUT_GPU_MEMORY_UTILIZATION}"
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu="${LOG_PROB_MICRO_BATCH_SIZE_PER_GPU}"
)
if [[ ${DEVICE} == gpu ]]; then
  ACTOR+=(
    actor_rollout_ref.actor.fsdp_config.param_offload="${PARAM_OFFLOAD}"
    actor_rollout_ref.actor.fsdp_config.optimizer_offload="${OPTIMIZER_OFFLOAD}"
  )
  ROLLOUT+=(actor_rollout_ref.rollout.name="${INFER_BACKEND}")
else
  fixed_by "DEVICE=cpu" INFER_BACKEND PARAM_OFFLOAD OPTIMIZER_OFFLOAD
  fixed_by "a grader on the CPU" REWARD_MODEL_DP REWARD_MODEL_TP REWARD_MODEL_MEM_FRACTION REWARD_MODEL_GPUS
fi
ONEPO=(
  onepo.teacher_enabled="${TEACHER_ENABLED}"
  onepo.probability_floor="${PROBABILITY_FLOOR}"
  onepo.teacher_max_steps="${TEACHER_MAX_STEPS}"
  onepo.retirement_plateau_window="${RETIREMENT_PLATEAU_WINDOW}"
  onepo.retirement_plateau_tolerance="${RETIREMENT_PLATEAU_TOLERANCE}"
  onepo.retirement_plateau_min_rate="${RETIREMENT_PLATEAU_MIN_RATE}"
)
TEACHER=(
  onepo.teacher.enabled="${ONLINE_TEACHER_ENABLED}"
  onepo.teacher.max_tokens="${TEACHER_MAX_TOKENS}"
  onepo.teacher.max_concurrency="${TEACHER_MAX_CONCURRENCY}"
  onepo.teacher.timeout="${TEACHER_TIMEOUT}"
  onepo.teacher.max_retries="${TEACHER_MAX_RETRIES}"
  onepo.teacher.outage_limit="${TEACHER_OUTAGE_LIMIT}"
  onepo.teacher.answers_dir="$(hq "${TEACHER_ANSWERS_DIR:-${OUTPUT_DIR%/}/teacher_answers}")"
)
text_override TEACHER onepo.teacher.model TEACHER_MODEL onepo.teacher.url TEACHER_API_URL
SAMPLING=(
  algorithm.filter_groups.enable="${ENABLE_FILTER_GROUPS}"
  algorithm.filter_groups.metric="$(hq "${FILTER_GROUPS_METRIC}")"
  onepo.max_num_gen_batches="${MAX_NUM_GEN_BATCHES}"
  onepo.enable_overlong_buffer="${ENABLE_OVERLONG_BUFFER}"
  onepo.overlong_buffer_len="${OVERLONG_BUFFER_LEN}"
  onepo.overlong_penalty_factor="${OVERLONG_PENALTY_FACTOR}"
  onepo.answer_expected_tokens="${ANSWER_EXPECTED_TOKENS}"
  onepo.answer_buffer_tokens="${ANSWER_BUFFER_TOKENS}"
  onepo.answer_penalty_factor="${ANSWER_PENALTY_FACTOR}"
  onepo.answer_marker="$(hq "${ANSWER_MARKER}")"
  onepo.require_thinking="${REQUIRE_THINKING}"
)
GRADER=(
  onepo.grader.extra_body="$(hq "${REWARD_MODEL_EXTRA_BODY}")"
  onepo.grader.timeout="${REWARD_MODEL_TIMEOUT}"
  onepo.grader.max_tokens="${REWARD_MODEL_MAX_TOKENS}"
  onepo.grader.max_retries="${REWARD_MODEL_MAX_RETRIES}"
  onepo.grader.max_concurrency="${REWARD_MODEL_MAX_CONCURRENCY}"
  onepo.grader.outage_limit="${REWARD_MODEL_OUTAGE_LIMIT}"
  onepo.grader.max_failure_rate="${REWARD_MAX_FAILURE_RATE}"
  onepo.reward_function.timeout="${REWARD_FUNCTION_TIMEOUT}"
  onepo.reward_function.workers="${REWARD_FUNCTION_WORKERS}"
  onepo.reward_server.start="${START_REWARD_SERVER}"
  onepo.reward_server.backend="${REWARD_SERVER_BACKEND}"
  onepo.reward_server.host="$(hq "${REWARD_SERVER_HOST}")"
  onepo.reward_server.port="${REWARD_MODEL_PORT}"
  onepo.reward_server.dp="${REWARD_MODEL_DP}"
  onepo.reward_server.tp="${REWARD_MODEL_TP}"
  onepo.reward_server.mem_fraction="${REWARD_MODEL_MEM_FRACTION}"
  onepo.reward_server.start_timeout="${REWARD_SERVER_START_TIMEOUT}"
  onepo.reward_server.max_restarts="${REWARD_SERVER_MAX_RESTARTS}"
  onepo.reward_server.auto_kill="${AUTO_KILL_REWARD_SERVER}"
)
text_override GRADER onepo.reward_function.spec REWARD_FUNCTION onepo.grader.url REWARD_MODEL_URL onepo.grader.name REWARD_MODEL_NAME \
  onepo.grader.prompt_file REWARD_PROMPT_FILE onepo.reward_server.path REWARD_MODEL_PATH \
  onepo.reward_server.python REWARD_SERVER_PYTHON onepo.reward_server.gpus REWARD_MODEL_GPUS \
  onepo.reward_server.chat_template REWARD_MODEL_CHAT_TEMPLATE onepo.reward_server.extra_args REWARD_MODEL_EXTRA_ARGS
VALIDATION=(
  trainer.test_freq="${TEST_FREQ}"
  onepo.test_steps="${TEST_STEPS}"
  trainer.val_before_train="${VAL_BEFORE_TRAIN}"
  actor_rollout_ref.rollout.val_kwargs.n="${VAL_N}"
  actor_rollout_ref.rollout.val_kwargs.temperature="${VAL_TEMPERATURE}"
  trainer.log_val_generations="${LOG_VAL_GENERATIONS}"
)
text_override VALIDATION trainer.validation_data_dir OUTPUTS_DIR
TRAINER=(
  trainer.project_name="$(hq "${PROJECT_NAME}")"
  trainer.experiment_name="$(hq "${EXPERIMENT_NAME}")"
  trainer.logger="${LOGGER}"
  trainer.nnodes="${NNODES}"
  trainer.n_gpus_per_node="${NGPUS_PER_NODE}"
  trainer.total_epochs="${TOTAL_EPOCHS}"
  trainer.total_training_steps="${TOTAL_TRAINING_STEPS}"
  trainer.save_freq="${SAVE_FREQ}"
  onepo.max_checkpoints="${MAX_ACTOR_CHECKPOINTS}"
  onepo.save_training_state="${SAVE_TRAINING_STATE}"
  onepo.rollout_dump_freq="${ROLLOUT_DUMP_FREQ}"
  onepo.rollout_dump_samples="${ROLLOUT_DUMP_SAMPLES}"
)
text_override TRAINER trainer.default_local_dir CHECKPOINT_DIR onepo.resume RESUME

launch onepo.train "${RUN[@]}" "${DATA[@]}" "${MODEL[@]}" "${ACTOR[@]}" "${ROLLOUT[@]}" "${ONEPO[@]}" \
  "${TEACHER[@]}" "${SAMPLING[@]}" "${GRADER[@]}" "${VALIDATION[@]}" "${TRAINER[@]}" "$@"
