#!/usr/bin/env bash
# Installs packages by uv, which takes a fifth of the time, or by pip where uv cannot be had.
# Usage: workflow/install.sh ENVIRONMENT [--locked FILE] ARGUMENT_OF_PIP_INSTALL...
set -euo pipefail
python=$1/bin/python
shift
pip=("$python" -m pip --disable-pip-version-check)

# Sets `locked`: what a file of requirements/ has, and nothing else, with its hashes if it has those for this Python.
lock() {
    local here
    here=$("$python" -c 'import platform as p, sys; print("cp3%d-%s-%s" % (sys.version_info[1], p.system(), p.machine()))')
    if grep -qE "^# .* $here( |\$)" "$1"; then
        locked=(--no-deps --require-hashes -r "$1")
    else
        echo "$1 has no hashes for $here: its versions are installed without" >&2
        unhashed=$(mktemp)
        trap 'rm -f "$unhashed"' EXIT
        sed 's/ --hash=.*//' "$1" >"$unhashed"
        locked=(--no-deps -r "$unhashed")
    fi
}

uv=$(command -v uv || echo "${python%python}uv")
if [ ! -x "$uv" ]; then
    lock "$(dirname "$0")/../requirements/uv.txt"
    "${pip[@]}" install --quiet "${locked[@]}" || { echo "uv cannot be installed; pip is used" >&2 && uv=""; }
fi
if [ "$1" = --locked ]; then
    lock "$2"
    set -- "${locked[@]}" "${@:3}"
fi
with_pip() { "${pip[@]}" install --quiet "$@"; }
[ -n "$uv" ] || { with_pip "$@" && exit; }

# uv does not read pip's settings, such as an index of one's own. As for pip, all indexes count alike.
options=(--index-strategy unsafe-best-match)
settings=$("${pip[@]}" config list)
names=(index-url extra-index-url find-links)
[[ " $* " = *" --no-deps "* ]] || names+=(constraint) # with hashes, uv refuses one that is no exact version
for name in "${names[@]}"; do
    values=$(sed -nE "s/^(global|install|:env:)\.$name='(.*)'\$/\2/p" <<<"$settings" | sed 's/\\n/ /g')
    for value in $values; do options+=("--$name" "$value"); done
done
cert=$(sed -nE "s/^(global|install|:env:)\.cert='(.*)'\$/\2/p" <<<"$settings" | tail -n 1)
[ -z "$cert" ] || export SSL_CERT_FILE=$cert
"$uv" pip install --quiet --python "$python" "${options[@]}" "$@" || { echo "uv failed; pip is used" >&2 && with_pip "$@"; }
