#!/usr/bin/env bash
# CAMP-II OPD on this machine's CPU: a small student that acts at random learns from a teacher with a plan.
#   bash recipes/camp_quickstart/run_opd.sh
#   SEED=1 TOTAL_UPDATES=60 bash recipes/camp_quickstart/run_opd.sh    other models, another order, a shorter run
# Every option of CAMP_OPD.sh may be set as well; extra arguments are Hydra overrides.
set -euo pipefail
ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
source "${ROOT}/recipes/camp_quickstart/common.sh"

begin_quickstart camp-opd-quickstart
if [[ -z ${TEACHER_URL-} ]]; then
  export TEACHER_PATH=${TEACHER_PATH:-${HOME_OF_RUNS}/teacher-${SEED}}
  make_model teacher "${TEACHER_PATH}"
fi
bash "${ROOT}/CAMP_OPD.sh" "$@"
[[ ${DRY_RUN-} == 1 ]] || "${PYTHON}" -m onepo.report.curves "${OUTPUT_DIR}"
