// With BMI2, variable shifts are single instructions, and decoding does little else.
#if defined(__x86_64__)
#define TESSERA_DECODE_MCU decode_mcu_bmi2
#include "io/images/jpeg_huffman_loop.h"
#endif
