#!/usr/bin/env bash
# The distributed run: rank 0 is the server, the other N - 1 ranks train.
#
#   bash launch/mpirun.sh N CONFIG.yaml [arguments of mrtf run, such as --set comm_round=5]
#   bash launch/mpirun.sh N --resume RUN_DIR
#
# HOSTFILE=FILE spreads the ranks over the hosts it names. OMP_NUM_THREADS=T gives each rank T threads; without it the
# cores are divided among the ranks. MPIRUN_ARGS holds further arguments of mpirun.
set -euo pipefail
# shellcheck source=launch/environment.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/environment.sh"

if (($# < 2)) || ! [[ $1 =~ ^[0-9]+$ ]]; then
  echo "usage: launch/mpirun.sh N CONFIG.yaml [arguments of mrtf run]  (N ranks, rank 0 the server)" >&2
  exit 2
fi
ranks=$1
shift
if [[ $1 != -* ]]; then
  set -- --cf "$@"
fi

# An environment that is active serves, with whichever MPI it has; otherwise one is made with PyPI's.
if ! command -v mrtf >/dev/null || ! command -v mpirun >/dev/null; then
  install_extras mpi
fi

options=(-n "$ranks")
if [[ -n ${HOSTFILE:-} ]]; then options+=(--hostfile "$HOSTFILE"); fi
if mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
  # More ranks than cores are welcome: who waits sleeps. Unbound, since threads are counted out to the ranks by us.
  options+=(--oversubscribe --bind-to none)
  if ((EUID == 0)); then options+=(--allow-run-as-root); fi
  # Other hosts do not inherit this shell's environment.
  for name in OMP_NUM_THREADS PATH PYTHONPATH LD_LIBRARY_PATH; do
    if [[ -n ${!name:-} ]]; then options+=(-x "$name"); fi
  done
fi
# shellcheck disable=SC2086  # several words are meant
exec mpirun "${options[@]}" ${MPIRUN_ARGS:-} mrtf run "$@"
