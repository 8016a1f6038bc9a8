#!/bin/bash
# The fused networks against the same in LibTorch's own operations, interleaved. Prints tables of
# docs/performance.md.
#
#   bench/forms.sh BUILD [PLOT.svg]
#
# Needs only BUILD/tessera and python3. TESSERA_BENCH_ROUNDS (3), TESSERA_BENCH_PARTS (infer,train,size).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/forms.sh BUILD [PLOT.svg]}
exec python3 "$here/forms.py" --program "$build/tessera" --rounds "${TESSERA_BENCH_ROUNDS:-3}" \
  --parts "${TESSERA_BENCH_PARTS:-infer,train,size}" ${2:+--plot "$2"}
