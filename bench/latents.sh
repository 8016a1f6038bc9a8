#!/bin/bash
# What stands around a generator: decoding latents of 32 x 32 by Stable Diffusion's auto-encoder beside diffusers, features
# of Inception-v3 beside pytorch-fid, the Frechet distance of two Gaussians of 2048 dimensions, and the memory of a picture
# of 1024 x 1024 that is decoded in tiles (bench/latents_peer.py; results compared first). Prints a table of
# docs/performance.md.
#
#   bench/latents.sh BUILD
#
# TESSERA_PEER_PYTHON as for bench/infer.sh, with diffusers and pytorch-fid. TESSERA_BENCH_ROUNDS (3).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench/latents.sh BUILD}
python=$("$here/peer_python" "$build" latents "torch, diffusers, pytorch_fid" torch diffusers pytorch-fid safetensors)
exec "$python" "$here/latents_peer.py" --program "$build/tessera" --rounds "${TESSERA_BENCH_ROUNDS:-3}"
