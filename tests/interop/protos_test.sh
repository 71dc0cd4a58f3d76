#!/usr/bin/env bash
# Our google.pubsub.v1 against the official declaration in @google-cloud/pubsub.
# usage: protos_test.sh DIRECTORY PROTOC
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/setup.sh" "$1"
protoc=$2
client=$NODE_PATH/@google-cloud/pubsub/build/protos
imports=$NODE_PATH/google-gax/build/protos
files=(google/pubsub/v1/pubsub.proto google/pubsub/v1/schema.proto)
"$protoc" -I"$here/../../proto" --descriptor_set_out="$1/ours.pb" "${files[@]}"
"$protoc" -I"$client" -I"$imports" --descriptor_set_out="$1/official.pb" "${files[@]}" 2>/dev/null
exec node "$here/compare_protos.js" "$1/ours.pb" "$1/official.pb"
