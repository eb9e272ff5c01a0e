#!/usr/bin/env bash
# Every check of the project, in an environment of its own: lint, format, types, tests.
#
#   bash launch/test.sh [--all] [arguments of pytest]
#
# Without --all the tests that take minutes are left out.
set -euo pipefail
# shellcheck source=launch/environment.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/environment.sh"

left_out=(slow)
if [[ ${1:-} == --all ]]; then
  left_out=()
  shift
fi

install_extras test,mpi
# shellcheck source=launch/broker.sh
source "$ROOT/launch/broker.sh"
ensure_broker
# shellcheck source=launch/browser.sh
source "$ROOT/launch/browser.sh"
ensure_browser || left_out+=(browser)

selection=()
if ((${#left_out[@]})); then
  marks=$(printf ' and not %s' "${left_out[@]}")
  selection=(-m "${marks# and }")
fi

# FedML reads and writes ~/.fedml: the tests neither see nor change the user's.
private_home=$(mktemp -d)
trap 'rm -rf -- "$private_home"' EXIT
export HOME=$private_home
# The models under test are small, and some tests start several processes: one thread each is fastest.
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

step() {
  local name=$1 status=0
  shift
  echo "== $name"
  "$@" || status=$?
  if ((status != 0)); then
    echo "== $name failed (exit status $status)" >&2
    exit "$status"
  fi
}

cd -- "$ROOT"
step "ruff check" python -m ruff check .
step "ruff format" python -m ruff format --check .
step "mypy" python -m mypy
step "pytest" python -m pytest ${selection[@]+"${selection[@]}"} "$@"
