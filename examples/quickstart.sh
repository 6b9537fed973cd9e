#!/bin/bash
# The quick start, from a fresh Debian 12 on: installs what is missing, builds into build/, and runs the main job.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. test/setup.sh

# shellcheck disable=SC2086
install_packages $run_packages

mkdir -p build
log=build/quickstart-build.txt
show_log() {
  tail -n 40 "$log" >&2
  echo "the build failed; all of its output is in $log" >&2
}
trap show_log ERR
if [ ! -f build/meson-private/coredata.dat ]; then
  say "configuring build/"
  meson setup build --buildtype release -Dtests=false >"$log" 2>&1 </dev/null
fi
say "compiling (a few minutes, once)"
ninja -C build partita >"$log" 2>&1 </dev/null
trap - ERR
say "built build/partita"
