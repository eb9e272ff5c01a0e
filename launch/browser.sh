# shellcheck shell=bash
# Sourced by test.sh after environment.sh: `ensure_browser` finds or installs Chromium for the tests of the reports.
#
# Debian's chromium where the system has it; installed where we are root. Where neither can be, it returns 1, and
# test.sh leaves the tests marked `browser` out.

ensure_browser() {
  local name
  for name in chromium chromium-browser google-chrome google-chrome-stable; do
    # Asked for its version: a stand-in that only tells how to install one does not count.
    if "$name" --version >/dev/null 2>&1; then return; fi
  done
  if ((EUID == 0)) && command -v apt-get >/dev/null; then
    echo "installing chromium, the browser of the tests"
    if apt-get install -y -qq chromium >/dev/null 2>&1 ||
      { apt-get update -qq && apt-get install -y -qq chromium; } >/dev/null 2>&1; then
      return
    fi
  fi
  echo "no browser: the tests marked browser are left out. Install chromium to have the reports looked at, too." >&2
  return 1
}
