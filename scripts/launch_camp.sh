# shellcheck shell=bash
# What CAMP's launchers share behind their options: checks, the environment, and the arguments of camp.train.
# Sourced with `set -euo pipefail`; the launcher sets ROOT to the repository.
source "${ROOT}/scripts/launch_lib.sh"

# prepare_camp METHOD ARGUMENT...: checks the options and sets NAMED, RUN, LEARNING, LIMITS, SAMPLING, MACHINE, CHECKPOINTS
# shellcheck disable=SC2034  # the launcher reads them
prepare_camp() {
  local method=$1
  shift
  read_arguments "$@"
  one_of DRY_RUN 0 1
  one_of DEVICE cpu gpu
  one_of HARDWARE blackwell hopper ampere
  one_of INFER_BACKEND sglang vllm
  check_options
  [[ -z ${PPO_MAX_TOKEN_LEN_PER_GPU} || ${PPO_MAX_TOKEN_LEN_PER_GPU} =~ ${INTEGER} ]] ||
    problem "PPO_MAX_TOKEN_LEN_PER_GPU=${PPO_MAX_TOKEN_LEN_PER_GPU}: must be a whole number"
  stop_on_problems
  [[ ${method} != opd ]] || absolute TEACHER_PATH TEACHER_TOKENIZER
  absolute STUDENT_PATH ROUTES SCHEDULE RESUME OUTPUT_DIR SWANLAB_DIR TMP_DIR RAY_SOCKET_DIR
  [[ ${method} != opd || ${TEACHER_SERVER_PYTHON} != */* ]] || absolute TEACHER_SERVER_PYTHON
  [[ ${CAMP_SERVICES_PYTHON} != */* ]] || absolute CAMP_SERVICES_PYTHON
  check_run_names
  choose_device
  if [[ ${DEVICE} == cpu ]]; then
    is_set LEARNER_GPUS || LEARNER_GPUS=1
    is_set SAMPLER_GPUS || SAMPLER_GPUS=1
    [[ ${method} != opd ]] || is_set TEACHER_GPUS || TEACHER_GPUS=1
    fixed_by "DEVICE=cpu" HARDWARE INFER_BACKEND
  elif [[ -z ${HARDWARE} ]]; then
    HARDWARE=$(gpu_generation)
    [[ -n ${HARDWARE} || ${DRY_RUN} == 1 ]] || ! gpu_is_visible || say "the GPUs are of no generation of docs/hardware.md: set HARDWARE, or \
overrides of your own"
  fi
  require_path -d STUDENT_PATH "a directory with the student model"
  [[ ${method} != opd ]] || choose_teacher
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

  NAMED=(--method "${method}" --output "${OUTPUT_DIR}")
  [[ ${method} != opd ]] || named_option NAMED --teacher TEACHER_URL --teacher TEACHER_PATH
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
  )
  LIMITS=(
    data.max_prompt_length="${MAX_PROMPT_LENGTH}"
    data.max_response_length="${MAX_RESPONSE_LENGTH}"
  )
  [[ -z ${PPO_MAX_TOKEN_LEN_PER_GPU} ]] ||
    LIMITS+=(actor_rollout_ref.actor.ppo_max_token_len_per_gpu="${PPO_MAX_TOKEN_LEN_PER_GPU}")
  SAMPLING=(
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
}

choose_teacher() {  # verl's own teachers, a server that is started with the same model, or one that runs at TEACHER_URL
  local -r server=(TEACHER_SERVER_{PYTHON,HOST,PORT,DP,TP,MEM_FRACTION,GPUS,EXTRA_ARGS,START_TIMEOUT,MAX_RESTARTS} \
    AUTO_KILL_TEACHER_SERVER)
  if [[ -z ${TEACHER_URL} ]]; then
    require_path -d TEACHER_PATH "a directory with the teacher model, or set TEACHER_URL to the address of a server that has it"
    fixed_by "TEACHER_PATH" TEACHER_API_KEY TEACHER_TOKENIZER
    if [[ ${START_TEACHER_SERVER} == 1 ]]; then
      fixed_by "START_TEACHER_SERVER=1" TEACHER_GPUS
    else
      fixed_by "START_TEACHER_SERVER=0" TEACHER_BACKEND TEACHER_NAME TEACHER_OUTAGE_LIMIT "${server[@]}"
    fi
    return
  fi
  [[ -z ${TEACHER_PATH} ]] || problem "TEACHER_PATH and TEACHER_URL are both set: which teacher is it? Set one"
  [[ ${START_TEACHER_SERVER} == 0 ]] || problem "TEACHER_URL names a server that runs already: leave START_TEACHER_SERVER at 0"
  [[ ${TEACHER_URL,,} =~ ^https?:// ]] || problem "TEACHER_URL: must begin with http:// or https://"
  plain_url TEACHER_URL TEACHER_API_KEY
  fixed_by "TEACHER_URL" TEACHER_GPUS "${server[@]}"
  [[ -z ${TEACHER_TOKENIZER} ]] || require_path -d TEACHER_TOKENIZER "a directory with the teacher's tokenizer"
}
