#!/usr/bin/env bash
# The tutorial on the embedded store, with no services: a coordinator and a worker as processes of their own.
# Everything happens in a temporary folder; the last line says how it went.
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
work="$(mktemp -d)"
export JOBQ_LOCAL_DIR="$work/store"
export JOBQ_WORKFLOW_PREFIX=local/Tutorial
cp "$here"/*.py "$here"/*.yaml "$work"
cd "$work"

cleanup() {
  kill $(jobs -p) 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

bold=$( [ -t 1 ] && printf '\033[1m' || true ); plain=$( [ -t 1 ] && printf '\033[0m' || true )
say() { printf '\n%s$ %s%s\n' "$bold" "$*" "$plain"; }
run() { say "$@"; "$@"; }

run ai4s-jobq workflow validate linear.yaml diamond.yaml resilient.yaml

say 'WF_ID=$(ai4s-jobq workflow submit diamond.yaml)'
WF_ID=$(ai4s-jobq workflow submit diamond.yaml)

say 'ai4s-jobq workflow coordinator &'
ai4s-jobq workflow coordinator >coordinator.log 2>&1 &
say 'ai4s-jobq local/default worker -n 2 &'
ai4s-jobq local/default worker -n 2 >worker.log 2>&1 &

run ai4s-jobq workflow watch "$WF_ID"
run ai4s-jobq workflow status "$WF_ID"
run ai4s-jobq workflow list
run ai4s-jobq workflow tasks "$WF_ID" --json
run ai4s-jobq workflow summary

say 'ai4s-jobq workflow run linear.yaml   # one process, no services at all'
ai4s-jobq workflow run linear.yaml

printf '\nThe demo worked.\n'
