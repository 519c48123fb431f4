#!/usr/bin/env bash
# Runs the workflow with an overlay. The first pages are made while torch and Snakemake are installed.
# Usage: STARTED=SECOND_SINCE_1970 workflow/demo.sh OVERLAY CORES
set -euo pipefail
overlay=$1 cores=$2
results=results

mkdir -p "$results"
exec 9>"$results/.demo.lock"
flock --nonblock 9 || { echo "another demo is running in this folder; wait for it, or stop it (finished samples are kept)"; exit 1; }
# This script holds its own lock, so a lock of Snakemake can only be from a killed run.
[ -z "$(ls -A .snakemake/locks 2>/dev/null)" ] || .venv/bin/snakemake --configfile "$overlay" --unlock

seconds() { echo "$(($1 - STARTED)) s"; }
searchlens preview --config "$overlay" 9>&- &
preview=$!
make --silent .venv/.installed-run
ready=$(date +%s)
wait "$preview" || echo "the first pages could not be made; the run makes them all the same"
first=$(stat -c %Y "$results/report.html" || echo "$ready")
searchlens run --config "$overlay" --cores "$cores"
searchlens summary --config "$overlay"
echo "report: $results/report.html"
echo "explorer: $results/explorer.html"
echo "after $(seconds "$ready"): set up; after $(seconds "$first"): first pages; after $(seconds "$(date +%s)"): end"
