// A shape in messages, graphs and tables: columns first, as GGUF has it and llama.cpp prints
// it, trailing ones left out.
//
//   shape_text(4096, 11008, 1)  -> "[4096, 11008]"      a product of 4096 inputs, 11008 outputs
//   shape_text(2048, 768, 128)  -> "[2048, 768, 128]"   128 of them
#pragma once

#include <cstdint>
#include <string>

namespace ktx {

std::string shape_text(int64_t cols, int64_t rows, int64_t matrices = 1);

}  // namespace ktx
