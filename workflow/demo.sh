#!/usr/bin/env bash
# Runs the workflow with an overlay and renders the report when something changed.
# Usage: workflow/demo.sh OVERLAY CORES
set -euo pipefail
overlay=$1 cores=$2
results=results report=results/report.html

mkdir -p "$results"
exec 9>"$results/.demo.lock"
flock --nonblock 9 || { echo "another demo is running in this folder; wait for it, or stop it (finished samples are kept)"; exit 1; }
# This script holds its own lock, so a lock of Snakemake can only be from a killed run.
[ -z "$(ls -A .snakemake/locks 2>/dev/null)" ] || snakemake --configfile "$overlay" --unlock

searchlens run --config "$overlay" --cores "$cores"
if [ ! -e "$report" ] || [ -n "$(find "$results/figures" "$results/tables" -newer "$report" -print -quit)" ]; then
    snakemake --configfile "$overlay" --report "$report" --report-stylesheet workflow/report/style.css
fi
searchlens summary --config "$overlay"
echo "report: $report"
echo "explorer: $results/explorer.html"
