// Rounds weights to other formats. This is lossy, and done only where a rule allows it.
//
//   const RequantizedForm* form = find_requantized_form("int4_g64");
//   requantize_row(*form, floats, 4096, out);       // 128 blocks of Q4_0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "lib/formats/dtype.h"

namespace ktx {

struct RequantizedForm {
  std::string_view name;
  DType dtype;    // whose blocks hold it
  int64_t group;  // elements that share a scale; a multiple of a block's
  std::string_view sentence;
};

std::span<const RequantizedForm> requantized_forms();
const RequantizedForm* find_requantized_form(std::string_view name);  // null: none

// `elems` floats, a multiple of the group, to blocks; NaN becomes 0. What decodes from these is at
// most half a step of its group's scale away, and of the format's largest scale for what
// exceeds it.
void requantize_row(const RequantizedForm& form, const float* x, int64_t elems, std::byte* out);

}  // namespace ktx
