// Shifts by a variable number of bits are one instruction here, and decoding is hardly anything else.
#if defined(__x86_64__)
#define TESSERA_DECODE_MCU decode_mcu_bmi2
#include "io/images/jpeg_huffman_loop.h"
#endif
