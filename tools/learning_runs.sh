#!/usr/bin/env bash
# Trains a list of runs, some at a time, one thread each, and gathers their results.
#
#   tools/learning_runs.sh SUITE [OUT]        OUT: default runs/<name of the suite>
#
# A suite is a text file with one setting per line, `#` begins a comment:
#
#   label  env  backbone  seeds  steps  [more arguments of `mamba-rl train`, such as --set backbone.d_conv=2]
#
# Seeds are a list (1,2,5) or a range (1-5). Each run goes to OUT/<label>__s<seed>; its result.json becomes one line of
# OUT/results.jsonl. A finished run is skipped, an interrupted one is resumed, a failed one is told and leaves its output in
# <run>.log: start the same command again until nothing is left. Then:
#
#   cargo run --release --example results_table -- OUT
#
# JOBS=2 runs side by side; MAMBA_RL=target/release/mamba-rl is the program.
set -euo pipefail

suite="${1:?usage: tools/learning_runs.sh SUITE [OUT]}"
out="${2:-runs/$(basename "${suite%.*}")}"
jobs="${JOBS:-2}"
program="${MAMBA_RL:-target/release/mamba-rl}"
[ -r "$suite" ] || { echo "cannot read the suite $suite" >&2; exit 2; }
[ -x "$program" ] || { echo "$program is not there: cargo build --release" >&2; exit 2; }
mkdir -p "$out"

seeds() { # 1-3 or 1,2,5 -> one a line
  local part
  for part in ${1//,/ }; do
    case "$part" in *-*) seq "${part%-*}" "${part#*-}" ;; *) echo "$part" ;; esac
  done
}

finished() { [ -f "$1/result.json" ] && grep -Eq '"stopped": *"(finished|stop_return)"' "$1/result.json"; }

# OUT/results.jsonl from the runs' own files: the lines of earlier calls cannot be doubled or lost.
gather() {
  local dir
  for dir in "$out"/*__s*/; do
    if finished "${dir%/}"; then tr -s ' \n' ' ' <"${dir}result.json"; echo; fi
  done >"$out/results.jsonl.new"
  mv "$out/results.jsonl.new" "$out/results.jsonl"
}

one() { # label env backbone seed steps more...
  local label="$1" env="$2" backbone="$3" seed="$4" steps="$5" dir="$out/$1__s$4" begun=$SECONDS
  shift 5
  local resume=()
  if [ -f "$dir/config.toml" ]; then resume=(--resume); fi
  if "$program" train --env "$env" --backbone "$backbone" --seed "$seed" --steps "$steps" --run-dir "$dir" \
    --set train.threads=1 --quiet "$@" "${resume[@]}" >"$dir.log" 2>&1; then
    echo "done    $label seed $seed, $((SECONDS - begun)) s"
  else
    echo "FAILED  $label seed $seed, exit $?: $(tail -n 1 "$dir.log")" >&2
    return 1
  fi
}

failed=0
running=0
while read -r label env backbone list steps more; do
  case "$label" in '' | '#'*) continue ;; esac
  more="${more%%#*}"
  [ -n "$steps" ] || { echo "$suite: \`$label\` needs label, env, backbone, seeds and steps" >&2; exit 2; }
  for seed in $(seeds "$list"); do
    if finished "$out/${label}__s$seed"; then
      echo "skipped $label seed $seed: finished"
      continue
    fi
    if [ "$running" -ge "$jobs" ]; then
      wait -n || failed=$((failed + 1))
      running=$((running - 1))
      gather
    fi
    # shellcheck disable=SC2086 # the arguments of a line are words
    one "$label" "$env" "$backbone" "$seed" "$steps" $more </dev/null &
    running=$((running + 1))
  done
done <"$suite"
while [ "$running" -gt 0 ]; do
  wait -n || failed=$((failed + 1))
  running=$((running - 1))
done
gather
echo "$(wc -l <"$out/results.jsonl") results in $out/results.jsonl, $failed failed"
[ "$failed" = 0 ]
