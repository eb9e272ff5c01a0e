#!/usr/bin/env bash
# Every check of the project, in an environment of its own: lint, format, types, tests.
#
#   bash launch/test.sh                        all checks: about 6 minutes on two idle cores
#   bash launch/test.sh --all                  the tests marked slow, too: about 40 minutes
#   bash launch/test.sh tests/refinery -k adam arguments of pytest: these tests alone, in one process
#
# All tests run in two processes. `-n 2 -p randomly` runs them in a random order.
set -euo pipefail
# shellcheck source=launch/environment.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/environment.sh"

excluded=(slow)
extras=test,mpi
duration="6 minutes"
# A file's tests share fixtures, so they stay in one worker. Files are started in the order of tests/conftest.py.
parallel=(-p tests.progress -n 2 --dist loadfile --no-loadscope-reorder)
if [[ ${1:-} == --all ]]; then
  excluded=()
  # The tests with pretrained weights are skipped without these.
  extras+=,encoders,weights
  duration="40 minutes"
  shift
elif (($#)); then
  # A few tests: one process starts sooner than two.
  parallel=(-n 0)
fi

# needs FOLDER: do the given arguments leave room for tests in this folder? They do unless they name other paths only.
needs() {
  local argument path named=no
  for argument in ${arguments[@]+"${arguments[@]}"}; do
    path=${argument%%::*}
    path=${path%/}
    [[ -e $ROOT/$path ]] || continue
    named=yes
    if [[ $1/ == "$path"/* || $path/ == "$1"/* ]]; then return 0; fi
  done
  [[ $named == no ]]
}
arguments=("$@")

install_extras "$extras"
if needs tests/backends || needs tests/examples; then
  # shellcheck source=launch/broker.sh
  source "$ROOT/launch/broker.sh"
  ensure_broker
fi
if needs tests/report; then
  # shellcheck source=launch/browser.sh
  source "$ROOT/launch/browser.sh"
  ensure_browser || excluded+=(browser)
fi

selection=()
if ((${#excluded[@]})); then
  marks=$(printf ' and not %s' "${excluded[@]}")
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
if (($# == 0)); then
  echo "All checks usually take $duration on two idle cores."
  step "ruff check" python -m ruff check .
  step "ruff format" python -m ruff format --check .
  step "mypy" python -m mypy
  step "codespell" python -m codespell_lib README.md docs mrtf_fedml benchmarks launch fedml_configs examples
fi
step "pytest" python -m pytest "${parallel[@]}" ${selection[@]+"${selection[@]}"} "$@"
