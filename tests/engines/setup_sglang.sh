#!/usr/bin/env bash
# Real SGLang for a CPU, for the slow tests:   bash tests/engines/setup_sglang.sh DIRECTORY
# Returns at once when DIRECTORY is up to date. TORCH_INDEX_URL names an additional index that has torch's CPU wheels.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"
# imported on every device; what PyPI has of them does not load without CUDA
readonly ABSENT=(sgl_kernel/{__init__,kvcacheio}.py torchvision/{__init__,transforms/__init__,transforms/functional}.py)

make_environment "${1-}" "SGLang 0.5.8, 3.1 GB on disk, some minutes" \
  "${ENGINES}/requirements-sglang.txt" "${ENGINES}/absent_module.py"
"${PIP[@]}" -r "${ENGINES}/requirements-sglang.txt"
PACKAGES=$(site_packages)
for module in "${ABSENT[@]}"; do
  install -D -m 644 "${ENGINES}/absent_module.py" "${PACKAGES}/${module}"
done
"${PYTHON[@]}" -m sglang.launch_server --help >/dev/null 2>&1 || die "SGLang does not start: run ${PYTHON[*]} -m \
sglang.launch_server --help"
finish_environment
