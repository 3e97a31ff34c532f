#include "kernels/matmul/retile.h"

#include "kernels/matmul/retile_blocks.h"
#include "lib/formats/layout.h"
#include "lib/support/result.h"

namespace ktx::kernels {
namespace {

using Retile = void (*)(int64_t cols, const std::byte* panel, std::byte* strip);

template <DType kType, Layout kFrom>
void retile(int64_t cols, const std::byte* panel, std::byte* strip) {
  for (int64_t block = 0; block < retile_row_blocks<kType>(cols); ++block) {
    for (int g = 0; g < 8; ++g) retile_blocks<kType, kFrom>(cols, panel, g, block, strip);
  }
}

template <DType kType>
Retile retile_of(Layout from) {
  if constexpr (InMarlin<typename RetileForm<kType>::Block>) {
    if (from == Layout::Panel16) return retile<kType, Layout::Panel16>;
    if constexpr (kHasStream<kType>) {
      if (from == Layout::Panel16Stream) return retile<kType, Layout::Panel16Stream>;
    }
  }
  return nullptr;
}

Retile find_retile(DType dtype, Layout from) {
#define KTX_PANEL16(id, rest_begin, rest_bytes) \
  if (dtype == DType::id) return retile_of<DType::id>(from);
#include "lib/formats/panel16.def"
#undef KTX_PANEL16
  return nullptr;
}

}  // namespace

bool retile_takes(DType dtype, Layout from) {
  return find_retile(dtype, from) != nullptr;
}

void retile_panel(DType dtype, Layout from, int64_t cols, const std::byte* panel,
                  std::byte* strip) {
  const Retile retile = find_retile(dtype, from);
  KTX_ASSERT(retile != nullptr);
  retile(cols, panel, strip);
}

}  // namespace ktx::kernels
