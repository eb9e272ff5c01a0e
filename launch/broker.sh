# shellcheck shell=bash
# Sourced by test.sh after environment.sh: `ensure_broker` finds or installs a real broker for the tests over MQTT.
#
# Debian's mosquitto where the system has it; installed where we are root; else amqtt from PyPI, in an environment of
# its own beside the tests' (it wants another typer than FedML does), where tests/backends/cross_silo/broker.py looks.

ensure_broker() {
  local environment python
  if [[ -n $(PATH=$PATH:/usr/sbin:/usr/local/sbin command -v mosquitto) ]]; then return; fi
  if ((EUID == 0)) && command -v apt-get >/dev/null; then
    echo "installing mosquitto, the MQTT broker of the tests"
    if apt-get install -y -qq mosquitto >/dev/null 2>&1 ||
      { apt-get update -qq && apt-get install -y -qq mosquitto; } >/dev/null 2>&1; then
      return
    fi
  fi
  python=$(command -v python)
  environment=$(python -c 'import sys; print(sys.prefix)')/broker
  if [[ -x $environment/bin/amqtt ]]; then return; fi
  echo "installing amqtt, an MQTT broker from PyPI, in $environment"
  "$python" -m venv --clear "$environment"
  "$environment/bin/python" -m pip install --quiet 'amqtt>=0.11'
}
