#!/bin/sh
# Runs every test. Tamma runs this gate on every change.
failed=0
for test in tests/*.sh; do
    if sh "$test"; then
        echo "ok: $test"
    else
        echo "FAILED: $test"
        failed=1
    fi
done
exit "$failed"
