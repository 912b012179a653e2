#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Generates clients of the REST API from its OpenAPI document in Go, Java, TypeScript and Python, compiles
# them, and has each list, put, read and delete against a controller (tests/clients). Needs the network the
# first time, go, a JDK with mvn, node with npm, and Python 3.10 or later with venv.
#
#   scripts/clients.sh
#
# From the environment: ONLY (names of the clients below), PROGRAM (built here unless given). Exit status: 0
# all work, 1 one does not, 2 it could not run.
set -euo pipefail
cd "$(dirname "$0")/.."

generator=7.25.0 python_client=0.29.1 oapi=2.8.2 oapi_runtime=1.9.0 typescript=5.9.3 node_types=20.19.9
needs=(urllib3==2.5.0 python-dateutil==2.9.0.post0 pydantic==2.11.7 typing-extensions==4.14.1)
root=$PWD
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$target/clients
. scripts/rest-controller.sh clients
rest_program
for tool in go javac mvn keytool node npm python3 curl; do
    command -v "$tool" >/dev/null || rest_fail "needs $tool, which is not there"
done
mkdir -p "$work"
rest_tools "$work/venv" "openapi-generator-cli==$generator" "openapi-python-client==$python_client" "${needs[@]}"
export PATH=$work/venv/bin:$PATH

rest_controller
# Each client is made of the document of the program that it talks to.
"$program" controller --openapi >"$folder/openapi.json"
export CA=$certificate URL=$url
export TOKEN RULES=$folder/one.rules
echo 'alert tcp any any -> any any (msg:"a"; content:"a"; sid:1;)' >"$RULES"
RULES_HASH=$(sha256sum "$RULES" | cut -d' ' -f1)
export RULES_HASH

generate() { # GENERATOR FOLDER [OPTIONS]
    local generator=$1 into=$2
    shift 2
    rm -rf "$into"
    mkdir -p "$into"
    openapi-generator-cli generate -i "$folder/openapi.json" -g "$generator" -o "$into" "$@" >"$into.log" 2>&1 || { tail -20 "$into.log" >&2; return 1; }
}

go_() {
    generate go "$work/go" --git-user-id bartizan --git-repo-id client
    rm -rf "$work/go/test"
    mkdir -p "$work/go/main"
    cp "$root/tests/clients/client.go" "$work/go/main/main.go"
    (cd "$work/go" && go mod tidy 2>/dev/null && go build -o run ./main && SSL_CERT_FILE=$CA ./run)
}

oapi_() {
    rm -rf "$work/oapi"
    mkdir -p "$work/oapi/api"
    cp "$root/tests/clients/oapi.go" "$work/oapi/main.go"
    (
        cd "$work/oapi"
        go run "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v$oapi" -generate types,client -package api -o api/api.go "$folder/openapi.json"
        go mod init clients 2>/dev/null
        go get "github.com/oapi-codegen/runtime@v$oapi_runtime" 2>/dev/null
        go mod tidy 2>/dev/null
        go build -o run . && SSL_CERT_FILE=$CA ./run
    )
}

java_() {
    generate java "$work/java"
    cp "$root/tests/clients/Main.java" "$work/java/src/main/java/Main.java"
    (
        cd "$work/java"
        mvn -q -B -DskipTests compile dependency:build-classpath -Dmdep.outputFile=classpath
        keytool -importcert -noprompt -alias controller -file "$CA" -keystore "$folder/trust" -storepass changeit >/dev/null 2>&1
        java -Djavax.net.ssl.trustStore="$folder/trust" -Djavax.net.ssl.trustStorePassword=changeit -cp "target/classes:$(cat classpath)" Main
    )
}

typescript_() {
    generate typescript-fetch "$work/typescript/api"
    cp "$root/tests/clients/main.ts" "$work/typescript/main.ts"
    (
        cd "$work/typescript"
        [ -e package.json ] || echo '{"private": true}' >package.json
        npm install --silent --no-audit --no-fund "typescript@$typescript" "@types/node@$node_types"
        npx tsc --strict --target es2022 --module commonjs --lib es2022,dom --types node --skipLibCheck --outDir out main.ts
        NODE_EXTRA_CA_CERTS=$CA node out/main.js
    )
}

python_() {
    generate python "$work/python"
    PYTHONPATH=$work/python python "$root/tests/clients/main.py"
}

opc_() {
    rm -rf "$work/opc"
    openapi-python-client generate --path "$folder/openapi.json" --output-path "$work/opc" >"$work/opc.log" 2>&1 || { cat "$work/opc.log" >&2; return 1; }
    # What it leaves out is a fault of the document, but for bodies in YAML, which it does not know and no
    # client needs.
    if grep -E 'Unable to|ERROR|Unsupported content type' "$work/opc.log" | grep -vE 'application/yaml|text/plain'; then return 1; fi
    PYTHONPATH=$work/opc python "$root/tests/clients/opc.py"
}

failed=0
for client in ${ONLY:-go oapi java typescript python opc}; do
    # Not in a condition: there `set -e` would not hold.
    set +e
    (
        set -e
        "${client}_"
    )
    result=$?
    set -e
    if [ "$result" = 0 ]; then echo "$client: generated, compiled, lists, puts, reads and deletes"; else echo "$client: FAILED" >&2; failed=1; fi
done
exit $failed
