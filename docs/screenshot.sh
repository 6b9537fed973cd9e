#!/bin/bash
# Writes docs/images/report.png: the first screen of a report that compares five strategies for ResNet-50 on four ranks.
#   bash docs/screenshot.sh
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=$PWD/build/partita machine=$PWD/examples/machines/lassen.toml picture=$PWD/docs/images/report.png
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
  { echo "docs/screenshot.sh: Chromium is not installed" >&2; exit 2; }
[ -x "$program" ] || { echo "docs/screenshot.sh: build first, with test/run.sh --fast" >&2; exit 2; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
# strategy NAME HEAD LAYOUT: writes a strategy file whose layers all have one layout.
strategy() { printf '%s\n[[layer]]\nmatch = "*"\noutput = "%s"\n' "$2" "$3" >"$1.toml"; }
strategy samples 'grid = "data=4"' "N@data"
strategy sharded-optimizer $'grid = "data=4"\noptimizer = "sharded"' "N@data"
strategy samples-and-rows 'grid = "data=2 y=2"' "N@data H@y"
strategy rows-and-columns 'grid = "y=2 x=2"' "H@y W@x"
printf 'stages = 4\n[schedule]\nkind = "1f1b"\nmicrobatches = 16\n' >pipeline.toml

"$program" compare --model resnet50 --batch 64 --machine "$machine" --memory-limit 2GiB --json compare.json --strategies \
  samples.toml sharded-optimizer.toml samples-and-rows.toml rows-and-columns.toml pipeline.toml
"$program" report compare.json --out report.html
"$chromium" --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1200,1095 --screenshot="$picture" \
  "file://$folder/report.html" 2>/dev/null
echo "wrote $picture"
