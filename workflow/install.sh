#!/usr/bin/env bash
# Installs packages by uv, which takes a fifth of the time, or by pip where uv cannot be had.
# Usage: workflow/install.sh ENVIRONMENT ARGUMENT_OF_PIP_INSTALL...
set -euo pipefail
python=$1/bin/python
shift
pip=("$python" -m pip --disable-pip-version-check)

uv=$(command -v uv || echo "${python%python}uv")
[ -x "$uv" ] || "${pip[@]}" install --quiet uv || { echo "uv cannot be installed; pip is used" >&2 && uv=""; }
with_pip() { "${pip[@]}" install --quiet "$@"; }
[ -n "$uv" ] || { with_pip "$@" && exit; }

# uv does not read pip's settings, such as an index of one's own. As for pip, all indexes count alike.
options=(--index-strategy unsafe-best-match)
settings=$("${pip[@]}" config list)
for name in index-url extra-index-url find-links constraint; do
    values=$(sed -nE "s/^(global|install|:env:)\.$name='(.*)'\$/\2/p" <<<"$settings" | sed 's/\\n/ /g')
    for value in $values; do options+=("--$name" "$value"); done
done
cert=$(sed -nE "s/^(global|install|:env:)\.cert='(.*)'\$/\2/p" <<<"$settings" | tail -n 1)
[ -z "$cert" ] || export SSL_CERT_FILE=$cert
"$uv" pip install --quiet --python "$python" "${options[@]}" "$@" || { echo "uv failed; pip is used" >&2 && with_pip "$@"; }
