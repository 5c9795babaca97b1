#!/usr/bin/env bash
# CAMP RL on this machine's CPU: a small student learns a game and a quest in services that run here, in a few minutes.
#   bash recipes/camp_quickstart/run.sh
#   SEED=1 TOTAL_UPDATES=60 bash recipes/camp_quickstart/run.sh    another student, another order, a shorter run
# Every option of CAMP_RL.sh may be set as well; extra arguments are Hydra overrides.
set -euo pipefail
ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
source "${ROOT}/recipes/camp_quickstart/common.sh"

begin_quickstart camp-quickstart
export CRITIC_LR=${CRITIC_LR:-1e-3}
CRITIC_FIRST=(trainer.critic_warmup=8)   # the actor waits until the critic knows something
bash "${ROOT}/CAMP_RL.sh" "${CRITIC_FIRST[@]}" "$@"
[[ ${DRY_RUN-} == 1 ]] || "${PYTHON}" -m onepo.report.curves "${OUTPUT_DIR}"
