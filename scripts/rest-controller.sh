# SPDX-License-Identifier: Apache-2.0
# For scripts that ask a controller's REST API, to be sourced with their name: they have the program, a
# controller with a state of its own that ends with them, and an administrator's token.
#
#   . scripts/rest-controller.sh NAME
#   rest_program                          program: PROGRAM of the environment, or built here
#   rest_tools FOLDER PACKAGE==VERSION... a Python environment with these packages, made anew when they change
#   rest_controller [OPTION...]           folder, url, certificate, TOKEN; the controller's log is $folder/log
#   ask CURL-ARGUMENT...                  asks with $TOKEN; the answer is in $folder/answer
#   made                                  the token in the last answer
rest_name=$1

rest_fail() {
    echo "$rest_name: $*" >&2
    exit 2
}

rest_program() {
    program=${PROGRAM:-}
    if [ -z "$program" ]; then
        scripts/needs.sh build
        cargo build --locked --package bartizan
        program=$target/debug/bartizan
    fi
    program=$(realpath "$program")
    [ -x "$program" ] || rest_fail "$program is not there or no program"
}

rest_tools() {
    local venv=$1
    shift
    [ "$(cat "$venv/versions" 2>/dev/null)" = "$*" ] && return
    echo "installs $* from the Python package index into $venv"
    python3 -m venv --clear "$venv" || rest_fail "needs Python 3.10 or later with venv (apt install python3-venv)"
    "$venv/bin/pip" install --quiet "$@"
    echo "$*" >"$venv/versions"
}

rest_over() {
    if [ -n "$controller" ]; then kill "$controller" 2>/dev/null || true; wait "$controller" 2>/dev/null || true; fi
    rm -rf "$folder"
}

rest_controller() {
    folder=$(mktemp -d) controller='' url=''
    trap rest_over EXIT
    "$program" controller --state "$folder/state" --listen 127.0.0.1:0 "$@" 2>"$folder/log" &
    controller=$!
    for _ in $(seq 200); do
        url=$(sed -n 's/.*\(https:\/\/[^ ,;]*\).*/\1/p' "$folder/log" | head -1)
        [ -n "$url" ] && [ -e "$folder/state/bootstrap-token" ] && break
        kill -0 "$controller" 2>/dev/null || break
        sleep 0.1
    done
    [ -n "$url" ] || { cat "$folder/log" >&2; rest_fail "the controller does not listen"; }
    url=${url%%/v1*}
    url=https://localhost:${url##*:}
    certificate=$folder/state/tls-certificate.pem
    TOKEN=$(cat "$folder/state/bootstrap-token")
    ask -d "{\"name\": \"$rest_name\", \"scope\": \"admin\"}" "$url/v1/tokens"
    TOKEN=$(made)
}

ask() { curl -sSf --cacert "$certificate" -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' -o "$folder/answer" "$@"; }
made() { sed -n 's/.*"token":"\([^"]*\)".*/\1/p' "$folder/answer"; }
