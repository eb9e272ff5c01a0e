# shellcheck shell=bash
# Sourced by the other scripts: `install_extras [extra,...]` makes the environment once and puts it first on PATH.
#
# MRTF_VENV names another folder for it than .venv in the clone. A stamp in that folder tells what was installed; while
# it holds, pip is not called at all, so that later runs are quick and need no network. Nothing is ever deleted.

set -euo pipefail

# The clone, wherever this is called from and through whichever links.
ROOT=$(dirname -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")")
export PIP_DISABLE_PIP_VERSION_CHECK=1

# install_extras [extra,...]: an environment with the project, editable, and these extras.
install_extras() {
  local extras=${1:-} environment=${MRTF_VENV:-.venv} stamp wanted found="" installed=""
  [[ $environment == /* ]] || environment=$ROOT/$environment
  stamp=$environment/.mrtf-installed
  make_environment "$environment"
  export PATH=$environment/bin:$PATH

  wanted=$(checksum "$environment/bin/python")
  if [[ -f $stamp ]]; then { read -r found && read -r installed; } <"$stamp" || true; fi
  if [[ $found == "$wanted" ]]; then
    if is_part_of "$extras" "$installed"; then return; fi
    extras=$extras${installed:+,$installed}
  fi
  rm -f -- "$stamp"
  echo "installing into $environment: the first install takes 4-6 minutes and 6 GB"
  pip_install "$environment" "$ROOT${extras:+[$extras]}"
  # Written last and in one move: an install that was interrupted has no stamp and is done again.
  printf '%s\n%s\n' "$wanted" "$extras" >"$stamp.part"
  mv -- "$stamp.part" "$stamp"
}

# Are all of $1 among $2, both lists such as test,mpi?
is_part_of() {
  local extra
  for extra in ${1//,/ }; do
    [[ ,$2, == *",$extra,"* ]] || return 1
  done
}

# A checksum of what decides the installed packages, for the environment's Python $1.
checksum() {
  "$1" - "$ROOT" <<'PYTHON'
import hashlib, pathlib, sys

root = pathlib.Path(sys.argv[1])
digest = hashlib.sha256(f"{sys.version} {root}".encode())
for name in ("setup.cfg", "pyproject.toml"):
    digest.update((root / name).read_bytes())
print(digest.hexdigest())
PYTHON
}

# Make the environment $1 where it is not there; one whose making was interrupted is made again.
make_environment() {
  local python
  if [[ -L $1/bin/python && ! -e $1/bin/python ]]; then
    echo "the Python that $1 was made with is gone; remove that folder and try again" >&2
    return 1
  fi
  if [[ -x $1/bin/python && ! -f $1/.mrtf-unfinished ]]; then return; fi
  python=$(find_python)
  echo "making an environment in $1 with $("$python" --version)"
  mkdir -p -- "$1"
  touch -- "$1/.mrtf-unfinished"
  "$python" -m venv "$1"
  rm -- "$1/.mrtf-unfinished"
}

# The path of a Python that can make environments; 3.11 first, being what everything is tried with.
find_python() {
  local candidate
  for candidate in python3.11 python3 python3.12 python3.10 python; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 13))' \
      2>/dev/null; then
      "$candidate" -c 'import sys; print(sys.executable)'
      return
    fi
  done
  echo "no Python from 3.10 to 3.12 with its venv module was found; install Python 3.11 (on Debian and Ubuntu also" \
    "python3-venv) and try again" >&2
  return 1
}

# Install what $2 names into the environment $1, with a line of progress that moves while pip works.
pip_install() {
  local log=$1/install.log seconds=0 status=0
  "$1/bin/python" -m pip install --quiet --editable "$2" >"$log" 2>&1 &
  pip_process=$!
  # A process in the background does not hear Ctrl-C: without this, pip would outlive the script.
  trap 'kill "$pip_process" 2>/dev/null || true' EXIT
  while kill -0 "$pip_process" 2>/dev/null; do
    sleep 1
    seconds=$((seconds + 1))
    if [[ -t 2 ]]; then
      printf '\r  %d min %02d s ' $((seconds / 60)) $((seconds % 60)) >&2
    elif ((seconds % 60 == 0)); then
      echo "  $((seconds / 60)) min" >&2
    fi
  done
  wait "$pip_process" || status=$?
  trap - EXIT
  if [[ -t 2 ]]; then printf '\r' >&2; fi
  if ((status != 0)); then
    tail -n 20 -- "$log" >&2
    echo "the install failed: its last lines are above, all of them in $log. Run this again to go on." >&2
    return "$status"
  fi
  echo "installed in $((seconds / 60)) min $((seconds % 60)) s"
}
