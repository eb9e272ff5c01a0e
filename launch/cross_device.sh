#!/usr/bin/env bash
# A dry run of a federation of devices on this machine: a server, and emulated devices in place of phones.
#
#   bash launch/cross_device.sh CONFIG.yaml [arguments of mrtf run, such as --set comm_round=3]
#
# If the configuration's MQTT broker or S3 endpoint is on this machine and does not listen, one is started for the run
# (mosquitto or amqtt; moto). Shows the server's progress. The others write to log files in a folder that is printed.
# Ctrl-C stops all processes. The exit code is the server's, or else the highest of the devices'.
set -euo pipefail
# shellcheck source=launch/environment.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/environment.sh"
# shellcheck source=launch/broker.sh
source "$ROOT/launch/broker.sh"

if (($# == 0)) || [[ $1 == -* ]]; then
  echo "usage: bash launch/cross_device.sh CONFIG.yaml [arguments of mrtf run]" >&2
  exit 2
fi
config=$1
shift
# Uses the active environment; creates one if there is none.
if ! command -v mrtf >/dev/null; then
  install_extras test,device
fi

# Devices, broker and bucket, with the changes of --set.
read -r devices broker_host broker_port s3_host s3_port bucket < <(
  python - "$config" "$@" <<'PYTHON'
import sys
from urllib.parse import urlparse
from mrtf_fedml.commands.configuration import load_configuration
from mrtf_fedml.config import RunSettings
from mrtf_fedml.errors import UserError

words = sys.argv[2:]
try:
    config = load_configuration(sys.argv[1], [words[i + 1] for i, word in enumerate(words[:-1]) if word == "--set"])
    settings = RunSettings.from_config(config)
    if settings.common.training_type != "cross_device":
        raise UserError(f"{sys.argv[1]!r} is not a configuration for devices: common_args.training_type must be cross_device")
    comm = config.get("comm_args", {})
    broker, s3 = comm.get("customized_training_mqtt_config"), comm.get("customized_training_s3_config")
    if not broker or not s3:
        raise UserError("comm_args needs customized_training_mqtt_config and customized_training_s3_config; add them")
except UserError as error:
    sys.exit(f"mrtf: {error}")
endpoint = urlparse(s3.get("CN_S3_ENDPOINT") or "")
address = (endpoint.hostname or "-", endpoint.port or "-")
print(settings.train.client_num_in_total, broker["BROKER_HOST"], broker["BROKER_PORT"], *address, s3["BUCKET_NAME"])
PYTHON
) || exit 2
[[ -n ${devices:-} ]] || exit 2

# The processes share the cores; more threads than cores slow all of them down.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
logs=$(mktemp -d)
pids=()
helpers=()
stop_helpers() {
  if ((${#helpers[@]})); then
    kill "${helpers[@]}" 2>/dev/null || true
    wait "${helpers[@]}" 2>/dev/null || true
  fi
}
stop_all() {
  trap - INT TERM
  kill -INT ${pids[@]+"${pids[@]}"} 2>/dev/null || true
  wait ${pids[@]+"${pids[@]}"} || true
  stop_helpers
  exit "$1"
}
# 128 plus the number of the signal, as usual in a shell.
trap 'stop_all 130' INT
trap 'stop_all 143' TERM
trap stop_helpers EXIT

listens() { (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; }
is_here() { [[ $1 == 127.0.0.1 || $1 == localhost ]]; }
await() {
  for _ in {1..100}; do
    if listens "$1" "$2"; then return; fi
    sleep 0.2
  done
  echo "nothing listens on $1:$2; see $logs" >&2
  exit 1
}

# Background jobs of a script ignore Ctrl-C; with job control each is a process group and receives our signal.
set -m
if is_here "$broker_host" && ! listens "$broker_host" "$broker_port"; then
  ensure_broker
  PATH=$PATH:/usr/sbin:/usr/local/sbin
  if command -v mosquitto >/dev/null; then
    mosquitto -p "$broker_port" >"$logs/broker.log" 2>&1 &
  else
    printf 'listeners:\n  default:\n    type: tcp\n    bind: 127.0.0.1:%s\nplugins:\n  %s:\n    allow_anonymous: true\n' \
      "$broker_port" amqtt.plugins.authentication.AnonymousAuthPlugin >"$logs/amqtt.yaml"
    "$(python -c 'import sys; print(sys.prefix)')/broker/bin/amqtt" -c "$logs/amqtt.yaml" >"$logs/broker.log" 2>&1 &
  fi
  helpers+=($!)
  await "$broker_host" "$broker_port"
fi
if is_here "$s3_host" && ! listens "$s3_host" "$s3_port"; then
  python -m moto.server -H 127.0.0.1 -p "$s3_port" >"$logs/s3.log" 2>&1 &
  helpers+=($!)
  await "$s3_host" "$s3_port"
  python - "http://127.0.0.1:$s3_port" "$bucket" <<'PYTHON'
import boto3, sys
keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
boto3.client("s3", endpoint_url=sys.argv[1], **keys).create_bucket(Bucket=sys.argv[2])
PYTHON
fi

processes=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
if ((processes > devices)); then processes=$devices; fi
mrtf run --cf "$config" --role server "$@" &
pids+=($!)
echo "starting $devices emulated devices in $processes processes, logs in $logs" >&2
for ((part = 0; part < processes; part++)); do
  ids="$((part * devices / processes + 1))-$(((part + 1) * devices / processes))"
  python -m mrtf_fedml.fedml_bridge.backends.cross_device.emulator --cf "$config" --devices "$ids" "$@" \
    >"$logs/devices-$ids.log" 2>&1 &
  pids+=($!)
done

# A server that fails early does not tell the devices to end.
worst=0
wait "${pids[0]}" || worst=$?
if ((worst != 0)); then kill -INT "${pids[@]:1}" 2>/dev/null || true; fi
for pid in "${pids[@]:1}"; do
  status=0
  wait "$pid" || status=$?
  if ((worst == 0 && status != 0)); then
    echo "emulated devices ended with exit status $status; see $logs" >&2
  fi
  if ((status > worst && worst == 0)); then worst=$status; fi
done
exit "$worst"
