#!/usr/bin/env bash
# Train a student with CAMP RL: asynchronous PPO with a learned critic over several task services. Linux only.
#   python -m camp.routes prepare --out prepared         binds the services and fixes the order of the episodes
#   STUDENT_PATH=/models/student ROUTES=prepared/routes.json SCHEDULE=prepared/train_schedule.jsonl bash CAMP_RL.sh
#   DRY_RUN=1 EPISODES_PER_UPDATE=32 bash CAMP_RL.sh      print the command, start nothing
#   bash CAMP_RL.sh trainer.total_training_steps=1        extra arguments are Hydra overrides; they win
#   bash CAMP_RL.sh --help                                every option with its default
set -euo pipefail
ROOT=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
source "${ROOT}/scripts/launch_lib.sh"

# ---- options: environment variables of these names; unset or empty means the default ----
group "Inputs"
option STUDENT_PATH "" "Student model: a directory with config, tokenizer, chat template and weights."
option ROUTES "" "routes.json of python -m camp.routes prepare; the services that it names as managed are started."
option SCHEDULE "" "train_schedule.jsonl that was made with these routes."
option RESUME "" "Checkpoint to go on from, OUTPUT_DIR/checkpoints/global_step_N; a fresh run never goes on by itself."

group "Run"
option DEVICE "" "cpu or gpu; empty means gpu if a GPU is visible, else the launcher stops."
option PYTHON "" "Python interpreter; empty means the active environment, else .venv, else python3."
option CAMP_SERVICES_PYTHON "" "Python of the task services; empty means .venv-services, which make services makes."
option DRY_RUN 0 "1 prints the exact command and starts nothing."
option SEED 42 "Seed of the learners, and of the critic's first weights."
option OUTPUT_DIR runs/camp-rl "Directory of the run: checkpoints, trajectories, final student; of one run and what goes on from it."
option PROJECT_NAME CAMP "Project name for the loggers."
option EXPERIMENT_NAME CAMP_RL "Experiment name for the loggers."
option LOGGER "[console]" "List of loggers, for example [console,swanlab]."
option SWANLAB_DIR "" "SwanLab files; empty means swanlab/ in OUTPUT_DIR."
option TMP_DIR "" "Directory for temporary files (exported as TMPDIR); empty means the system's."
option RAY_SOCKET_DIR "" "Short parent (at most 30 characters) of the run's private Ray directory; empty means /tmp."

group "Learning"
option TOTAL_UPDATES 100 "Updates; the run ends here or where the schedule ends."
option EPISODES_PER_UPDATE 64 "Finished episodes of an update."
option ACTOR_LR 1e-6 "Learning rate of the actor."
option CRITIC_LR 1e-5 "Learning rate of the critic."
option GAMMA 1.0 "Discount of later rewards, for each token."
option GAE_LAMBDA 1.0 "Weight of later value estimates in the advantage; 1 uses rewards alone."

group "Limits"
option MAX_PROMPT_LENGTH 2048 "Token limit of a task's first text."
option MAX_RESPONSE_LENGTH 8192 "Token limit of the rest of an episode, the service's texts included."
option PPO_MAX_TOKEN_LEN_PER_GPU "" "Tokens of a learner's micro-batch, at least one whole episode; empty means that of HARDWARE, else 12288."

group "Sampling"
option TEMPERATURE 1.0 "Sampling temperature."
option WARMUP_BATCHES 1.0 "Batches of episodes that are under way beside the one that an update waits for."
option MAX_STALENESS 4 "Largest number of updates between the weights that began an episode and its own update."
option EPISODE_RETRIES 3 "New attempts at an episode whose service failed, before the run saves and stops."
option SERVICE_OUTAGE_LIMIT 600 "Seconds for which a service may be gone without harm."
option SERVICE_START_TIMEOUT 180 "Seconds until the start of a managed service that does not get ready is given up."
option SERVICE_MAX_RESTARTS 3 "Restarts of a managed service that ended by itself, over the whole run."

group "Hardware"
option CUDA_VISIBLE_DEVICES "" "GPUs to use; empty means all."
option LEARNER_GPUS 6 "GPUs that learn; with DEVICE=cpu processes, 1 unless set."
option SAMPLER_GPUS 2 "GPUs that sample all the time; with DEVICE=cpu processes, 1 unless set."
option HARDWARE "" "blackwell, hopper or ampere: attention and memory of that generation; empty means that of the GPUs here."
option INFER_BACKEND sglang "Inference engine: sglang or vllm."
option ROLLOUT_TP 1 "GPUs per copy of the inference engine; it divides learners and samplers."

group "Checkpoints"
option SAVE_FREQ 10 "Updates between checkpoints."
option KEEP_CHECKPOINTS 1 "Newest checkpoints that are kept."
# ---- end of the options ----

own_prefixes ACTOR_ CRITIC_ EPISODE KEEP_ LEARNER_ MAX_PROMPT_ MAX_RESPONSE_ MAX_STALE SAMPLER_ SERVICE_ STUDENT_ \
  TOTAL_ WARMUP_

read_arguments "$@"
one_of DRY_RUN 0 1
one_of DEVICE cpu gpu
one_of HARDWARE blackwell hopper ampere
one_of INFER_BACKEND sglang vllm
check_options
[[ -z ${PPO_MAX_TOKEN_LEN_PER_GPU} || ${PPO_MAX_TOKEN_LEN_PER_GPU} =~ ${INTEGER} ]] ||
  problem "PPO_MAX_TOKEN_LEN_PER_GPU=${PPO_MAX_TOKEN_LEN_PER_GPU}: must be a whole number"
stop_on_problems
absolute STUDENT_PATH ROUTES SCHEDULE RESUME OUTPUT_DIR SWANLAB_DIR TMP_DIR RAY_SOCKET_DIR
[[ ${CAMP_SERVICES_PYTHON} != */* ]] || absolute CAMP_SERVICES_PYTHON
check_run_names
choose_device
if [[ ${DEVICE} == cpu ]]; then
  is_set LEARNER_GPUS || LEARNER_GPUS=1
  is_set SAMPLER_GPUS || SAMPLER_GPUS=1
  fixed_by "DEVICE=cpu" HARDWARE INFER_BACKEND
elif [[ -z ${HARDWARE} ]]; then
  HARDWARE=$(gpu_generation)
  [[ -n ${HARDWARE} || ${DRY_RUN} == 1 ]] || ! gpu_is_visible || say "the GPUs are of no generation of docs/hardware.md: set HARDWARE, or \
overrides of your own"
fi
require_path -d STUDENT_PATH "a directory with the student model"
require_path -f ROUTES "the routes.json of python -m camp.routes prepare"
require_path -f SCHEDULE "the train_schedule.jsonl that was made with these routes"
[[ -z ${RESUME} ]] || require_path -d RESUME "a checkpoint, such as OUTPUT_DIR/checkpoints/global_step_10"
stop_on_problems

run_env PYTHONPATH "${ROOT}:${ROOT}/recipes${PYTHONPATH:+:${PYTHONPATH}}"   # a clone works without being installed
run_env RAY_USAGE_STATS_ENABLED 0                                          # nothing about a run leaves the machine
run_env TOKENIZERS_PARALLELISM "${TOKENIZERS_PARALLELISM:-true}"
run_env SWANLAB_LOG_DIR "${SWANLAB_DIR:-${SWANLAB_LOG_DIR:-${OUTPUT_DIR}/swanlab}}"
run_env TENSORBOARD_DIR "${TENSORBOARD_DIR:-${OUTPUT_DIR}/tensorboard}"
[[ -z ${CAMP_SERVICES_PYTHON} ]] || run_env CAMP_SERVICES_PYTHON "${CAMP_SERVICES_PYTHON}"
[[ -z ${TMP_DIR} ]] || run_env TMPDIR "${TMP_DIR}"
[[ -z ${CUDA_VISIBLE_DEVICES} ]] || run_env CUDA_VISIBLE_DEVICES "${CUDA_VISIBLE_DEVICES}"
find_python
GPU_REQUIREMENTS="requirements-training.txt"
[[ ${DRY_RUN} == 1 ]] || check_python

NAMED=(--method rl --output "${OUTPUT_DIR}")
named_option NAMED --student STUDENT_PATH --routes ROUTES --schedule SCHEDULE --resume RESUME
RUN=(
  device="${DEVICE}"
  camp.seed="${SEED}"
  trainer.project_name="$(hq "${PROJECT_NAME}")"
  trainer.experiment_name="$(hq "${EXPERIMENT_NAME}")"
  trainer.logger="${LOGGER}"
)
if [[ -z ${RAY_ADDRESS-} ]]; then   # else the run joins the cluster that RAY_ADDRESS names
  private_ray_dir
  RUN+=(camp.ray_dir="$(hq "${RAY_DIR}")")
fi
LEARNING=(
  trainer.total_training_steps="${TOTAL_UPDATES}"
  data.train_batch_size="${EPISODES_PER_UPDATE}"
  actor_rollout_ref.actor.optim.lr="${ACTOR_LR}"
  critic.optim.lr="${CRITIC_LR}"
  algorithm.gamma="${GAMMA}"
  algorithm.lam="${GAE_LAMBDA}"
)
LIMITS=(
  data.max_prompt_length="${MAX_PROMPT_LENGTH}"
  data.max_response_length="${MAX_RESPONSE_LENGTH}"
)
[[ -z ${PPO_MAX_TOKEN_LEN_PER_GPU} ]] ||
  LIMITS+=(actor_rollout_ref.actor.ppo_max_token_len_per_gpu="${PPO_MAX_TOKEN_LEN_PER_GPU}")
SAMPLING=(
  actor_rollout_ref.rollout.temperature="${TEMPERATURE}"
  trainer.v1.separate_async.num_warmup_batches="${WARMUP_BATCHES}"
  camp.max_staleness="${MAX_STALENESS}"
  camp.episode_retries="${EPISODE_RETRIES}"
  camp.outage_limit="${SERVICE_OUTAGE_LIMIT}"
  camp.services.start_timeout="${SERVICE_START_TIMEOUT}"
  camp.services.max_restarts="${SERVICE_MAX_RESTARTS}"
)
MACHINE=(
  trainer.n_gpus_per_node="${LEARNER_GPUS}"
  actor_rollout_ref.rollout.n_gpus_per_node="${SAMPLER_GPUS}"
  actor_rollout_ref.rollout.tensor_model_parallel_size="${ROLLOUT_TP}"
)
if [[ ${DEVICE} == gpu ]]; then
  MACHINE+=(actor_rollout_ref.rollout.name="${INFER_BACKEND}")
  [[ -z ${HARDWARE} ]] || RUN+=(hardware="${HARDWARE}")
fi
CHECKPOINTS=(trainer.save_freq="${SAVE_FREQ}" camp.keep_checkpoints="${KEEP_CHECKPOINTS}")

launch camp.train "${NAMED[@]}" -- "${RUN[@]}" "${LEARNING[@]}" "${LIMITS[@]}" "${SAMPLING[@]}" "${MACHINE[@]}" \
  "${CHECKPOINTS[@]}" "$@"
