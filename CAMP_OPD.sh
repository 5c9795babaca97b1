#!/usr/bin/env bash
# Train a student with CAMP-II OPD: it acts in several task services, and a teacher scores every token. Linux only.
#   python -m camp.routes prepare --out prepared         binds the services and fixes the order of the episodes
#   STUDENT_PATH=/models/student TEACHER_PATH=/models/teacher ROUTES=prepared/routes.json \
#     SCHEDULE=prepared/train_schedule.jsonl bash CAMP_OPD.sh
#   DRY_RUN=1 EPISODES_PER_UPDATE=32 bash CAMP_OPD.sh      print the command, start nothing
#   bash CAMP_OPD.sh trainer.total_training_steps=1        extra arguments are Hydra overrides; they win
#   bash CAMP_OPD.sh --help                                every option with its default
set -euo pipefail
ROOT=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
source "${ROOT}/scripts/launch_camp.sh"

# ---- options: environment variables of these names; unset or empty means the default ----
group "Inputs"
option STUDENT_PATH "" "Student model: a directory with config, tokenizer, chat template and weights."
option TEACHER_PATH "" "Teacher model: a directory with the student's tokenizer; or set TEACHER_URL."
option TEACHER_URL "" "Address of an inference server that runs already and has the teacher, in the place of TEACHER_PATH."
option ROUTES "" "routes.json of python -m camp.routes prepare; the services that it names as managed are started."
option SCHEDULE "" "train_schedule.jsonl that was made with these routes."
option RESUME "" "Checkpoint to go on from, OUTPUT_DIR/checkpoints/global_step_N; a fresh run never goes on by itself."

group "Run"
option DEVICE "" "cpu or gpu; empty means gpu if a GPU is visible, else the launcher stops."
option PYTHON "" "Python interpreter; empty means the active environment, else .venv, else python3."
option CAMP_SERVICES_PYTHON "" "Python of the task services; empty means .venv-services, which make services makes."
option DRY_RUN 0 "1 prints the exact command and starts nothing."
option SEED 42 "Seed of the learners."
option OUTPUT_DIR runs/camp-opd "Directory of the run: checkpoints, trajectories, final student; of one run and what goes on from it."
option PROJECT_NAME CAMP "Project name for the loggers."
option EXPERIMENT_NAME CAMP_OPD "Experiment name for the loggers."
option LOGGER "[console]" "List of loggers, for example [console,swanlab]."
option SWANLAB_DIR "" "SwanLab files; empty means swanlab/ in OUTPUT_DIR."
option TMP_DIR "" "Directory for temporary files (exported as TMPDIR); empty means the system's."
option RAY_SOCKET_DIR "" "Short parent (at most 30 characters) of the run's private Ray directory; empty means /tmp."

group "Learning"
option TOTAL_UPDATES 100 "Updates; the run ends here or where the schedule ends."
option EPISODES_PER_UPDATE 64 "Finished episodes of an update."
option ACTOR_LR 1e-6 "Learning rate of the actor."

group "Limits"
option MAX_PROMPT_LENGTH 2048 "Token limit of a task's first text."
option MAX_RESPONSE_LENGTH 8192 "Token limit of the rest of an episode, the service's texts included."
option PPO_MAX_TOKEN_LEN_PER_GPU "" "Tokens of a learner's micro-batch, at least one whole episode; empty means that of HARDWARE, else 12288."

group "Sampling"
option WARMUP_BATCHES 1.0 "Batches of episodes that are under way beside the one that an update waits for."
option MAX_STALENESS 4 "Largest number of updates between the weights that began an episode and its own update."
option EPISODE_RETRIES 3 "New attempts at an episode whose service failed, before the run saves and stops."
option SERVICE_OUTAGE_LIMIT 600 "Seconds for which a service may be gone without harm."
option SERVICE_START_TIMEOUT 180 "Seconds until the start of a managed service that does not get ready is given up."
option SERVICE_MAX_RESTARTS 3 "Restarts of a managed service that ended by itself, over the whole run."

group "Teacher"
option TEACHER_TIMEOUT 600 "Seconds until an attempt to score an episode is given up; waiting for a free place is not part of it."
option TEACHER_MAX_RETRIES 3 "Further attempts after a time-out or an error."
option TEACHER_MAX_CONCURRENCY 64 "Episodes that each process with agent loops lets the teacher score at one time."
option TEACHER_MAX_UNSCORED 0.1 "Largest share of episodes without scores, among as many as an update has; above it the run saves and stops."

group "Teacher in an inference server: at TEACHER_URL, or started here"
option START_TEACHER_SERVER 0 "1 starts a server with the model of TEACHER_PATH, and asks it in the place of verl's own teachers."
option TEACHER_BACKEND sglang "Kind of the server: sglang or vllm."
option TEACHER_NAME teacher "Name of the served model; SGLang asks for none."
option TEACHER_API_KEY "" "Key of a server that wants one; never printed, never an argument."
option TEACHER_TOKENIZER "" "Directory with the tokenizer at TEACHER_URL, to be compared with the student's; empty means it is not."
option TEACHER_OUTAGE_LIMIT 600 "Seconds for which the server may be gone without harm; then the run saves and stops."
option TEACHER_SERVER_PYTHON "" "Python of the environment that has the engine of a server started here; empty means that of the run."
option TEACHER_SERVER_HOST 127.0.0.1 "Address it binds to; processes on other machines need one that they can reach."
option TEACHER_SERVER_PORT 30002 "Its port."
option TEACHER_SERVER_DP 2 "Copies of it; one on the CPU."
option TEACHER_SERVER_TP 1 "GPUs per copy."
option TEACHER_SERVER_MEM_FRACTION 0.7 "Share of GPU memory for it."
option TEACHER_SERVER_GPUS "" "Its GPUs, for example 6,7; empty means those of the run."
option TEACHER_SERVER_EXTRA_ARGS "" "Further arguments of the engine's server, as in a shell."
option TEACHER_SERVER_START_TIMEOUT 900 "Seconds until a start that does not get healthy is given up."
option TEACHER_SERVER_MAX_RESTARTS 3 "Restarts of a server that ended by itself, over the whole run."
option AUTO_KILL_TEACHER_SERVER 1 "1 stops it when training ends."

group "Hardware"
option CUDA_VISIBLE_DEVICES "" "GPUs to use; empty means all."
option LEARNER_GPUS 4 "GPUs that learn; with DEVICE=cpu processes, 1 unless set."
option SAMPLER_GPUS 2 "GPUs that sample all the time; with DEVICE=cpu processes, 1 unless set."
option HARDWARE "" "blackwell, hopper or ampere: attention and memory of that generation; empty means that of the GPUs here."
option INFER_BACKEND sglang "Inference engine: sglang or vllm."
option TEACHER_GPUS 2 "GPUs of verl's own teachers; with DEVICE=cpu processes, 1 unless set."
option ROLLOUT_TP 1 "GPUs per copy of the inference engine; it divides learners and samplers."

group "Checkpoints"
option SAVE_FREQ 10 "Updates between checkpoints."
option KEEP_CHECKPOINTS 1 "Newest checkpoints that are kept."
# ---- end of the options ----

own_prefixes ACTOR_ EPISODE KEEP_ LEARNER_ MAX_PROMPT_ MAX_RESPONSE_ MAX_STALE SAMPLER_ SERVICE_ STUDENT_ TEACHER_ \
  TOTAL_ WARMUP_

one_of TEACHER_BACKEND sglang vllm
one_of START_TEACHER_SERVER 0 1
one_of AUTO_KILL_TEACHER_SERVER 0 1
while read -r name; do problem "${name}: OPD has no critic"; done < <(compgen -e CRITIC_)
prepare_camp opd "$@"
METHOD=(
  camp.teacher.timeout="${TEACHER_TIMEOUT}"
  camp.teacher.max_retries="${TEACHER_MAX_RETRIES}"
  camp.teacher.max_concurrency="${TEACHER_MAX_CONCURRENCY}"
  camp.teacher.max_unscored_share="${TEACHER_MAX_UNSCORED}"
  camp.teacher.engine="${TEACHER_BACKEND}"
  camp.teacher.model="$(hq "${TEACHER_NAME}")"
  camp.teacher.outage_limit="${TEACHER_OUTAGE_LIMIT}"
  camp.teacher.server.start="${START_TEACHER_SERVER}"
  camp.teacher.server.host="$(hq "${TEACHER_SERVER_HOST}")"
  camp.teacher.server.port="${TEACHER_SERVER_PORT}"
  camp.teacher.server.dp="${TEACHER_SERVER_DP}"
  camp.teacher.server.tp="${TEACHER_SERVER_TP}"
  camp.teacher.server.mem_fraction="${TEACHER_SERVER_MEM_FRACTION}"
  camp.teacher.server.start_timeout="${TEACHER_SERVER_START_TIMEOUT}"
  camp.teacher.server.max_restarts="${TEACHER_SERVER_MAX_RESTARTS}"
  camp.teacher.server.auto_kill="${AUTO_KILL_TEACHER_SERVER}"
  distillation.n_gpus_per_node="${TEACHER_GPUS}"
)
text_override METHOD camp.teacher.tokenizer TEACHER_TOKENIZER camp.teacher.server.python TEACHER_SERVER_PYTHON \
  camp.teacher.server.gpus TEACHER_SERVER_GPUS camp.teacher.server.extra_args TEACHER_SERVER_EXTRA_ARGS
launch camp.train "${NAMED[@]}" -- "${RUN[@]}" "${LEARNING[@]}" "${METHOD[@]}" "${LIMITS[@]}" "${SAMPLING[@]}" "${MACHINE[@]}" \
  "${CHECKPOINTS[@]}" "$@"
