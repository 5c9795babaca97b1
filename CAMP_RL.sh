#!/usr/bin/env bash
# Train a student with CAMP RL: asynchronous PPO with a learned critic over several task services. Linux only.
#   python -m camp.routes prepare --out prepared         binds the services and fixes the order of the episodes
#   STUDENT_PATH=/models/student ROUTES=prepared/routes.json SCHEDULE=prepared/train_schedule.jsonl bash CAMP_RL.sh
#   DRY_RUN=1 EPISODES_PER_UPDATE=32 bash CAMP_RL.sh      print the command, start nothing
#   bash CAMP_RL.sh trainer.total_training_steps=1        extra arguments are Hydra overrides; they win
#   bash CAMP_RL.sh --help                                every option with its default
set -euo pipefail
ROOT=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
source "${ROOT}/scripts/launch_camp.sh"

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

prepare_camp rl "$@"
METHOD=(
  actor_rollout_ref.rollout.temperature="${TEMPERATURE}"
  critic.optim.lr="${CRITIC_LR}"
  algorithm.gamma="${GAMMA}"
  algorithm.lam="${GAE_LAMBDA}"
)
launch camp.train "${NAMED[@]}" -- "${RUN[@]}" "${LEARNING[@]}" "${METHOD[@]}" "${LIMITS[@]}" "${SAMPLING[@]}" "${MACHINE[@]}" \
  "${CHECKPOINTS[@]}" "$@"
