#include "fuzz/image_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { return fuzz_image(data, size); }
