#include "lib/target/stream_prefetch.h"

#include "lib/target/processor.h"

namespace ktx {
namespace {

// Measured ones alone.
constexpr ProcessorRow<int64_t> kRows[] = {
    {"AuthenticAMD", 0x1A, 6144},  // Zen 5: 4,608 gave 0.97 of it, 8,192 gave 0.98
};

}  // namespace

int64_t stream_prefetch_bytes(std::string_view vendor, unsigned family) {
  return of_processor<int64_t>(kRows, vendor, family, 0);
}

int64_t stream_prefetch_bytes() {
  static const int64_t bytes =
      stream_prefetch_bytes(this_processor().vendor, this_processor().family);
  return bytes;
}

}  // namespace ktx
