#!/usr/bin/env bash
# A federation on this machine, for a trial: a server, and as many silos as the configuration has.
#
#   bash launch/cross_silo.sh CONFIG.yaml [arguments of mrtf run, such as --set comm_round=3]
#
# Shows the server's progress. The silos write to log files in a folder that is printed. Ctrl-C stops all processes. The
# exit code is the highest of all processes.
set -euo pipefail
# shellcheck source=launch/environment.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/environment.sh"

if (($# == 0)) || [[ $1 == -* ]]; then
  echo "usage: bash launch/cross_silo.sh CONFIG.yaml [arguments of mrtf run]" >&2
  exit 2
fi
config=$1
shift
# Uses the active environment; creates one if there is none.
if ! command -v mrtf >/dev/null; then
  install_extras mpi
fi

# Backend, number of silos, and the address that the server listens on, with the changes of --set.
read -r backend silos host port < <(
  python - "$config" "$@" <<'PYTHON'
import csv, sys
from mrtf_fedml.commands.configuration import load_configuration
from mrtf_fedml.config import RunSettings
from mrtf_fedml.errors import UserError

words = sys.argv[2:]
try:
    config = load_configuration(sys.argv[1], [words[i + 1] for i, word in enumerate(words[:-1]) if word == "--set"])
    settings = RunSettings.from_config(config)
    if settings.common.training_type != "cross_silo":
        raise UserError(f"{sys.argv[1]!r} is not a configuration for silos: common_args.training_type must be cross_silo")
except UserError as error:
    sys.exit(f"mrtf: {error}")
comm, backend, address = config.get("comm_args", {}), settings.common.backend, ("-", "-")
if backend in ("GRPC", "TRPC"):
    address = ("127.0.0.1", "8890")
    file = comm.get("grpc_ipconfig_path" if backend == "GRPC" else "trpc_master_config_path")
    if backend == "GRPC" and settings.silo.server_address:
        address = settings.silo.server_address.rsplit(":", 1)
    elif file:
        with open(file, newline="") as opened:
            first = list(csv.reader(opened))[1]
        address = tuple(first[2:4]) if backend == "GRPC" else tuple(first[:2])
print(backend, settings.train.client_num_in_total, *address)
PYTHON
) || exit 2
[[ -n ${backend:-} ]] || exit 2

# The processes share the cores; more threads than cores slow all of them down.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

if [[ $backend == MPI ]]; then
  root=()
  if ((EUID == 0)); then root=(--allow-run-as-root); fi
  exec mpirun ${root[@]+"${root[@]}"} --oversubscribe -n $((silos + 1)) mrtf run --cf "$config" "$@"
fi

logs=$(mktemp -d)
pids=()
stop_all() {
  trap - INT TERM
  kill -INT ${pids[@]+"${pids[@]}"} 2>/dev/null || true
  wait || true
  exit "$1"
}
# 128 plus the number of the signal, as usual in a shell.
trap 'stop_all 130' INT
trap 'stop_all 143' TERM

# Background jobs of a script ignore Ctrl-C; with job control each is a process group and receives our signal.
set -m
mrtf run --cf "$config" --role server "$@" &
pids+=($!)
server=$!
if [[ $host != - ]]; then
  until (exec 3<>"/dev/tcp/$host/$port") 2>/dev/null; do
    kill -0 "$server" 2>/dev/null || break
    sleep 0.5
  done
fi
if kill -0 "$server" 2>/dev/null; then
  echo "the server is running; starting $silos silos, logs in $logs" >&2
  for ((rank = 1; rank <= silos; rank++)); do
    mrtf run --cf "$config" --role client --rank "$rank" "$@" >"$logs/silo-$rank.log" 2>&1 &
    pids+=($!)
  done
fi

worst=0
for index in "${!pids[@]}"; do
  status=0
  wait "${pids[$index]}" || status=$?
  if ((status != 0 && index > 0)); then
    echo "silo $index ended with exit status $status:" >&2
    tail -n 3 -- "$logs/silo-$index.log" >&2
  fi
  if ((status > worst)); then worst=$status; fi
done
exit "$worst"
