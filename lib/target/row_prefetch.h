// The cache into which attention prefetches rows of the KV cache before it reads them.
//
// Between a span's rows the processor computes for longer than its prefetchers reach, and a block's
// neighbour is anywhere. Zen 4 gains most from prefetches into the second cache, Zen 5 gained from
// those into the first (bench/2026-11-cpu-attention.md, bench/2026-11-cpu-zen5.md).
#pragma once

#include <cstdint>
#include <string_view>

namespace ktx {

enum class RowPrefetch : uint8_t { None, FirstCache, SecondCache };

// The cache for this machine.
RowPrefetch row_prefetch();

// The same for a processor with this vendor name and family (processor.h).
RowPrefetch row_prefetch(std::string_view vendor, unsigned family);

}  // namespace ktx
