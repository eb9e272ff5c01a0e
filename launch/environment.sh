# shellcheck shell=bash
# Sourced by the other scripts: `install_extras [extra,...]` makes the environment once and puts it first on PATH.
#
# MRTF_VENV names another folder for it than .venv in the clone. A stamp in that folder holds a checksum of what was
# asked for; while it holds, pip is not called at all, so that later runs are quick and need no network.

set -euo pipefail

# The folder of the clone, wherever this is called from and through whichever links.
repository_root() {
  local file=${BASH_SOURCE[0]} folder
  while [[ -L $file ]]; do
    folder=$(cd -P -- "$(dirname -- "$file")" && pwd)
    file=$(readlink -- "$file")
    [[ $file == /* ]] || file=$folder/$file
  done
  cd -P -- "$(dirname -- "$file")/.." && pwd
}

ROOT=$(repository_root)
export PIP_DISABLE_PIP_VERSION_CHECK=1

# The path of a Python that works and can make environments; 3.11 first, being what everything is tried with.
find_python() {
  local candidate
  for candidate in python3.11 python3 python3.12 python3.10 python; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 13))' \
      2>/dev/null; then
      "$candidate" -c 'import sys; print(sys.executable)'
      return
    fi
  done
  echo "no Python from 3.10 to 3.12 (with its venv module) was found; install Python 3.11 and try again" >&2
  return 1
}

# A checksum of all that the installed packages depend on: $1 a Python, $2 the extras.
wanted_stamp() {
  "$1" - "$2" "$ROOT" <<'PYTHON'
import hashlib, pathlib, sys

extras, root = sys.argv[1:]
digest = hashlib.sha256(f"{sys.version}|{root}|{','.join(sorted(set(extras.split(','))))}".encode())
for name in ("setup.cfg", "pyproject.toml"):
    digest.update(pathlib.Path(root, name).read_bytes())
print(digest.hexdigest())
PYTHON
}

# install_extras [extra,...]: an environment with the project, editable, and these extras.
install_extras() {
  local extras=${1:-} environment=${MRTF_VENV:-$ROOT/.venv} python stamp wanted log
  [[ $environment == /* ]] || environment=$ROOT/$environment
  # One stamp a set of extras: quickstart.sh and test.sh may take turns without undoing each other.
  stamp=$environment/.mrtf-installed${extras:+-${extras//,/-}}
  if [[ -x $environment/bin/python ]] && wanted=$(wanted_stamp "$environment/bin/python" "$extras") &&
    [[ -f $stamp && $(<"$stamp") == "$wanted" ]]; then
    export PATH=$environment/bin:$PATH
    return
  fi

  if ! [[ -x $environment/bin/python && -f $environment/.mrtf-made ]]; then
    python=$(find_python)
    echo "making an environment in $environment with $("$python" --version)"
    "$python" -m venv --clear "$environment"
    touch "$environment/.mrtf-made"
  fi
  export PATH=$environment/bin:$PATH
  rm -f -- "$stamp"
  echo "installing${extras:+ with $extras}: the first install takes 4-6 minutes and 6 GB"
  log=$environment/install.log
  if ! install_quietly "$environment" "$ROOT${extras:+[$extras]}" "$log"; then
    tail -n 20 -- "$log" >&2
    echo "the install failed; its end is above, all of it is in $log. Run this again to go on." >&2
    return 1
  fi
  # Written last: an install that was interrupted has no stamp and is done again.
  wanted_stamp "$environment/bin/python" "$extras" >"$stamp"
}

# pip into $1 what $2 names, its output in $3, with a line of progress that moves while it works.
install_quietly() {
  local seconds=0 pid status=0
  "$1/bin/python" -m pip install --quiet --editable "$2" >"$3" 2>&1 &
  pid=$!
  # Ctrl-C reaches pip as well on a terminal; elsewhere it would outlive this script.
  trap 'kill "$pid" 2>/dev/null' EXIT
  while kill -0 "$pid" 2>/dev/null; do
    sleep 1
    seconds=$((seconds + 1))
    if [[ -t 2 ]]; then
      printf '\r  %d:%02d ' $((seconds / 60)) $((seconds % 60)) >&2
    elif ((seconds % 60 == 0)); then
      echo "  $((seconds / 60)) min" >&2
    fi
  done
  wait "$pid" || status=$?
  trap - EXIT
  if [[ -t 2 ]]; then printf '\r' >&2; fi
  if ((status == 0)); then echo "installed in $((seconds / 60)) min $((seconds % 60)) s"; fi
  return "$status"
}
