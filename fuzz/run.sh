#!/usr/bin/env bash
# Fuzzes a target, or all of them two at a time, for some seconds each: run.sh PROGRAM FOLDER TARGET
# SECONDS. The folder keeps the corpus that a run has grown, and the inputs of its findings.
set -euo pipefail
program="$1" folder="$2" selected="$3" seconds="$4"
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

run() {
    local target="$1"
    mkdir -p "$folder/corpus/$target" "$folder/findings/$target"
    FUZZ_TARGET="$target" "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -max_len=65536 -print_final_stats=1 -artifact_prefix="$folder/findings/$target/" \
        "$folder/corpus/$target" "$here/corpus/$target" > "$folder/$target.log" 2>&1 || true
}

if [ "$selected" = all ]; then targets=("$here"/corpus/*); else targets=("$here/corpus/$selected"); fi
for seeds in "${targets[@]}"; do
    if ! [ -d "$seeds" ]; then
        echo "error: no target \`$(basename "$seeds")\`; the targets are: $(ls "$here/corpus" | xargs)" >&2
        exit 2
    fi
    while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
    run "$(basename "$seeds")" &
done
wait

code=0
printf '%-18s %12s %9s %8s\n' target executions coverage findings
for seeds in "${targets[@]}"; do
    target="$(basename "$seeds")"
    executions="$(sed -nE 's/^stat::number_of_executed_units: +//p' "$folder/$target.log")"
    coverage="$(grep -oE 'cov: [0-9]+' "$folder/$target.log" | tail -n 1 | cut -d ' ' -f 2 || true)"
    findings="$(find "$folder/findings/$target" -type f | wc -l)"
    printf '%-18s %12s %9s %8d\n' "$target" "${executions:-none}" "${coverage:-none}" "$findings"
    if [ "$findings" != 0 ] || [ -z "$executions" ]; then
        code=1
        echo "  log: $folder/$target.log, inputs: $folder/findings/$target" >&2
    fi
done
exit "$code"
