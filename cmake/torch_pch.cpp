// Builds LibTorch's precompiled header once; every layer on LibTorch reuses it.
