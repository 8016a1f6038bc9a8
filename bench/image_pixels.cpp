// image_pixels FILE…: decodes images as training does. Prints one line per file: width, height and the RGB bytes
// in hexadecimal, or "refused" and the reason.
#include <iomanip>
#include <iostream>

#include "core/error.h"
#include "data/base/image_files.h"

int main(int count, char** words) {
  using namespace tessera;
  for (int i = 1; i < count; ++i) try {
      const Image image = data::decode_sample(data::read_image_file(words[i]));
      std::cout << std::dec << image.width << " " << image.height << " " << std::hex << std::setfill('0');
      for (const uint8_t value : image.pixels) std::cout << std::setw(2) << int{value};
      std::cout << "\n";
    } catch (const Error& error) {
      std::cout << "refused " << error.what() << "\n";
    }
  return 0;
}
