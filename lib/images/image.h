// An image as it is decoded: 8 bits of red, green and blue a pixel, line by line from the top.
#pragma once

#include <cstdint>
#include <vector>

namespace ktx::images {

struct Image {
  int64_t width = 0;
  int64_t height = 0;
  std::vector<uint8_t> rgb;  // 3 * width * height
};

}  // namespace ktx::images
