#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Asks a controller's REST API all that its OpenAPI document allows and much that it does not, with all of
# schemathesis' checks: as a device, as reader and as operator of a tenant, as administrator. Needs the
# network the first time: schemathesis is installed into a folder of its own below the target folder.
#
#   scripts/schemathesis.sh
#
# From the environment: SEED (1), EXAMPLES of each operation (40), PROGRAM (built here unless given). Exit
# status: 0 nothing found, 1 something, 2 it could not run.
set -euo pipefail
cd "$(dirname "$0")/.."

version=4.32.5
root=$PWD
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
venv=$target/schemathesis
. scripts/rest-controller.sh schemathesis
rest_program
rest_tools "$venv" "schemathesis==$version"
rest_controller --southbound 127.0.0.1:0

run() {
    local who=$1 token=$2 seed=$3
    echo "== as $who, seed $seed"
    # It writes notes of its own where it is started.
    (cd "$folder" && SCHEMATHESIS_HOOKS=$root/tests/rest/hooks.py "$venv/bin/schemathesis" --config-file "$root/tests/rest/schemathesis.toml" \
        run "$root/docs/reference/openapi.json" --url "$url" --tls-verify "$certificate" -H "Authorization: Bearer $token" \
        --checks all --seed "$seed" --max-examples "${EXAMPLES:-40}" --warnings off --continue-on-failure)
}

# Something of each kind is there, by the names that hooks.py gives.
ask -X PUT -d '{"select": {"vni": 101}}' "$url/v1/tenants/acme"
ask -X PUT -d '{"select": {"vni": 102}}' "$url/v1/tenants/beta"
ask -X PUT -d '{"members": ["10.1.0.0/16"]}' "$url/v1/tenants/acme/groups/lan"
ask -X PUT -d '{"policy": {"from": "lan", "chain": ["pfw"], "pfw": {"default": "drop"}}}' "$url/v1/tenants/acme/policies/web"
ask -X PUT -d '{"policy": {"chain": []}}' "$url/v1/tenants/beta/policies/web"
ask -X PUT -d '{"tenants": ["acme"]}' "$url/v1/devices/edge"
rules='alert tcp any any -> any any (msg:"a"; content:"a"; sid:1;)'
hash=$(printf %s "$rules" | sha256sum | cut -d' ' -f1)
ask -X PUT -H 'Content-Type: text/plain' --data-binary "$rules" "$url/v1/rule-files/$hash" || true
ask -X PUT -d "{\"files\": [\"$hash\"]}" "$url/v1/libraries/open"
ask -d '{"name": "operator", "scope": "operator", "tenant": "acme"}' "$url/v1/tokens"
operator=$(made)
ask -d '{"name": "reader", "scope": "reader", "tenant": "acme"}' "$url/v1/tokens"
reader=$(made)
ask -d '{"name": "device", "scope": "device", "device": "edge"}' "$url/v1/tokens"
device=$(made)

found=0
seed=${SEED:-1}
run "a device" "$device" "$seed" || found=1
run "the reader of a tenant" "$reader" "$seed" || found=1
run "the operator of a tenant" "$operator" "$seed" || found=1
run administrator "$TOKEN" "$seed" || found=1
kill -0 "$controller" 2>/dev/null || { echo "the controller stopped:" >&2; tail -5 "$folder/log" >&2; found=1; }
if grep -q panicked "$folder/log"; then grep -A3 panicked "$folder/log" >&2; found=1; fi
exit $found
