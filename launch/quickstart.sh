#!/usr/bin/env bash
# MrTF labels data that it never saw a label of: makes an environment, installs, runs the quickstart.
#
#   bash launch/quickstart.sh [arguments of mrtf run, such as --set comm_round=5]
set -euo pipefail
# shellcheck source=launch/environment.sh
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/environment.sh"

install_extras
mrtf run --cf "$ROOT/fedml_configs/quickstart.yaml" "$@"

cat <<'TEXT'

The predictions are a table (label, confidence, probability of being right, prediction set, decision): open predictions.csv named above.
The report shows what happened, round by round: open report.html named above in a browser.
TEXT
