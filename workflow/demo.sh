#!/usr/bin/env bash
# Runs the workflow with an overlay.
# Usage: workflow/demo.sh OVERLAY CORES
set -euo pipefail
overlay=$1 cores=$2
results=results

mkdir -p "$results"
exec 9>"$results/.demo.lock"
flock --nonblock 9 || { echo "another demo is running in this folder; wait for it, or stop it (finished samples are kept)"; exit 1; }
# This script holds its own lock, so a lock of Snakemake can only be from a killed run.
[ -z "$(ls -A .snakemake/locks 2>/dev/null)" ] || snakemake --configfile "$overlay" --unlock

searchlens run --config "$overlay" --cores "$cores"
searchlens summary --config "$overlay"
echo "report: $results/report.html"
echo "explorer: $results/explorer.html"
