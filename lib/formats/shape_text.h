// Formats a shape for messages, graphs and tables: columns first, as in GGUF and llama.cpp, without
// trailing ones.
//
//   shape_text(4096, 11008, 1)  -> "[4096, 11008]"      a product of 4096 inputs, 11008 outputs
//   shape_text(2048, 768, 128)  -> "[2048, 768, 128]"   128 of them
#pragma once

#include <cstdint>
#include <string>

namespace ktx {

std::string shape_text(int64_t cols, int64_t rows, int64_t matrices = 1);

}  // namespace ktx
