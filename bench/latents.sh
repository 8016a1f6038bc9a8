#!/bin/bash
# The parts around a generator. Decoding 32 x 32 latents with Stable Diffusion's auto-encoder against
# diffusers. Inception-v3 features against pytorch-fid. The Frechet distance of two Gaussians of 2048
# dimensions. The memory for decoding a 1024 x 1024 image in tiles. bench/latents_peer.py compares results
# first. Prints a table of docs/performance.md.
#
#   bench/latents.sh BUILD
#
# TESSERA_PEER_PYTHON as for bench/infer.sh, with diffusers and pytorch-fid. TESSERA_BENCH_ROUNDS (3).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/latents.sh BUILD}
python=$("$here/peer_python" "$build" latents "torch, diffusers, pytorch_fid" torch diffusers pytorch-fid safetensors)
exec "$python" "$here/latents_peer.py" --program "$build/tessera" --rounds "${TESSERA_BENCH_ROUNDS:-3}"
