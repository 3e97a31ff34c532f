#include "lib/target/row_prefetch.h"

#include "lib/target/processor.h"

namespace ktx {
namespace {

// Measured ones alone, the latest first.
constexpr ProcessorRow<RowPrefetch> kRowCaches[] = {
    {"AuthenticAMD", 0x1A, RowPrefetch::FirstCache},   // Zen 5
    {"AuthenticAMD", 0x19, RowPrefetch::SecondCache},  // Zen 4
};

}  // namespace

RowPrefetch row_prefetch(std::string_view vendor, unsigned family) {
  return of_processor<RowPrefetch>(kRowCaches, vendor, family, RowPrefetch::None);
}

RowPrefetch row_prefetch() {
  static const RowPrefetch into = row_prefetch(this_processor().vendor, this_processor().family);
  return into;
}

}  // namespace ktx
