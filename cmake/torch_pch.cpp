// The object that makes LibTorch's precompiled header once; every layer on LibTorch reuses it.
