#define TESSERA_DECODE_MCU decode_mcu_plain
#include "io/images/jpeg_huffman_loop.h"
