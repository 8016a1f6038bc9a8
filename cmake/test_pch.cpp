// Builds the precompiled header of tests without LibTorch once.
