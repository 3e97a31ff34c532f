#include "lib/formats/shape_text.h"

#include <fmt/format.h>

namespace ktx {

std::string shape_text(int64_t cols, int64_t rows, int64_t matrices) {
  if (matrices != 1) return fmt::format("[{}, {}, {}]", cols, rows, matrices);
  if (rows != 1) return fmt::format("[{}, {}]", cols, rows);
  return fmt::format("[{}]", cols);
}

}  // namespace ktx
