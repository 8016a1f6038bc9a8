#define TESSERA_DECODE_MCU decode_mcu_plain
#include "io/jpeg_huffman_loop.h"
