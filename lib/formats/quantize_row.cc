#include "lib/formats/quantize_row.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "lib/formats/encode_block.h"
#include "lib/formats/int8_block.h"
#include "lib/support/result.h"

namespace ktx {
namespace {

// Scales are tried at which the largest weight is up to so many steps away from the last level.
constexpr int kTries = 4;
constexpr float kStep = 0.2f;  // of a level

// The numbers that codes of a format stand for.
class Levels {
 public:
  Levels() = default;
  Levels(int low, int count, const int8_t* table) : low_(low), count_(count), table_(table) {
    if (table == nullptr) return;
    KTX_ASSERT(count == kOfTable);
    std::iota(rising_.begin(), rising_.end(), 0);
    std::ranges::sort(rising_, {}, [&](int32_t code) { return table[code]; });
    for (size_t i = 0; i + 1 < kOfTable; ++i) {
      between_[i] = static_cast<float>(table[rising_[i]] + table[rising_[i + 1]]) / 2;
    }
  }

  float least() const { return static_cast<float>(table_ ? table_[rising_.front()] : low_); }
  float most() const {
    return static_cast<float>(table_ ? table_[rising_.back()] : low_ + count_ - 1);
  }

  // The codes of those nearest to (x + add) * factor, counted from 0. Loops of a known length
  // without calls and branches: the compiler makes vectors of them.
  template <int kCount>
  void nearest(const float* x, float add, float factor, int32_t* codes) const {
    const auto first = static_cast<float>(low_), last = static_cast<float>(count_ - 1);
    float at[kCount];
    for (int i = 0; i < kCount; ++i) at[i] = (x[i] + add) * factor - first;
    if (table_ != nullptr) {
      std::fill_n(codes, kCount, 0);
      for (const float border : between_) {
        for (int i = 0; i < kCount; ++i) codes[i] += at[i] > border ? 1 : 0;
      }
      for (int i = 0; i < kCount; ++i) codes[i] = rising_[static_cast<size_t>(codes[i])];
      return;
    }
    constexpr float kWhole = 12582912;  // 1.5 * 2^23: floats there are whole numbers
    for (int i = 0; i < kCount; ++i) {
      const float above = at[i] < 0 ? 0 : at[i];
      const float within = above > last ? last : above;
      codes[i] = std::bit_cast<int32_t>(within + kWhole) - std::bit_cast<int32_t>(kWhole);
    }
  }
  template <int kCount>
  void values(const int32_t* codes, float* out) const {
    for (int i = 0; i < kCount; ++i) {
      out[i] = static_cast<float>(table_ != nullptr ? table_[codes[i]] : low_ + codes[i]);
    }
  }

 private:
  static constexpr size_t kOfTable = 16;
  int low_ = 0, count_ = 0;
  const int8_t* table_ = nullptr;  // of so many
  std::array<int32_t, kOfTable> rising_ = {};
  std::array<float, kOfTable - 1> between_ = {};
};

// w = scale * level - min.
struct Group {
  float scale = 0, min = 0;
};

// Sums over weights and the levels that they are near to.
struct Sums {
  float x = 0, xx = 0, l = 0, ll = 0, xl = 0;
};

// Four sums side by side, so that no addition waits for the one before.
template <int kCount>
Sums sums_of(const float* x, const float* l) {
  constexpr int kLanes = 4;
  Sums lanes[kLanes];
  for (int i = 0; i < kCount; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) {
      Sums& sums = lanes[k];
      sums.x += x[i + k];
      sums.xx += x[i + k] * x[i + k];
      sums.l += l[i + k];
      sums.ll += l[i + k] * l[i + k];
      sums.xl += x[i + k] * l[i + k];
    }
  }
  Sums all;
  for (const Sums& sums : lanes) {
    all.x += sums.x;
    all.xx += sums.xx;
    all.l += sums.l;
    all.ll += sums.ll;
    all.xl += sums.xl;
  }
  return all;
}

// The scale at which the error is least, improved by least squares for the levels that it gives.
template <int kCount>
Group symmetric_group(const float* x, const Levels& levels) {
  const float largest = furthest_from_zero(x, kCount);
  Group best;
  float most = 0;  // what the squares are reduced by
  for (const float end : {levels.least(), levels.most()}) {
    for (int t = -kTries; t <= kTries; ++t) {
      const float factor = (end + kStep * static_cast<float>(t)) / largest;
      if (!std::isfinite(factor)) continue;
      int32_t codes[kCount];
      float values[kCount];
      levels.nearest<kCount>(x, 0, factor, codes);
      levels.values<kCount>(codes, values);
      const Sums sums = sums_of<kCount>(x, values);
      if (!(sums.xl * sums.xl > most * sums.ll)) continue;  // nor what overflows
      most = sums.xl * sums.xl / sums.ll;
      best.scale = sums.xl / sums.ll;
    }
  }
  return best;
}

// Likewise with a min; levels count from 0. `positive`: the min is not negative.
template <int kCount>
Group group_with_min(const float* x, const Levels& levels, bool positive) {
  float low = *std::min_element(x, x + kCount);
  const float high = *std::max_element(x, x + kCount);
  if (positive) low = std::min(low, 0.f);
  Group best{std::max(high - low, 0.f) / levels.most(), -low};
  float least = std::numeric_limits<float>::infinity();
  for (int t = -kTries; t <= kTries; ++t) {
    const float factor = (levels.most() + kStep * static_cast<float>(t)) / (high - low);
    if (!std::isfinite(factor) || factor <= 0) continue;
    int32_t codes[kCount];
    float values[kCount];
    levels.nearest<kCount>(x, -low, factor, codes);
    levels.values<kCount>(codes, values);
    const Sums sums = sums_of<kCount>(x, values);
    const float n = kCount, determinant = n * sums.ll - sums.l * sums.l;
    if (determinant <= 0) continue;
    float scale = (n * sums.xl - sums.x * sums.l) / determinant;
    float offset = (sums.ll * sums.x - sums.l * sums.xl) / determinant;
    if (positive && offset > 0) {
      offset = 0;
      scale = sums.xl / sums.ll;
    }
    const float error = sums.xx + scale * scale * sums.ll + n * offset * offset -
                        2 * scale * sums.xl - 2 * offset * sums.x + 2 * scale * offset * sums.l;
    if (!(scale > 0 && error < least)) continue;  // nor what overflows
    least = error;
    best = {scale, -offset};
  }
  return best;
}

template <class Block, int kElems, int kGroup, bool kHasMin>
class BlockRounder {
 public:
  BlockRounder(const Levels& levels, bool positive) : levels_(levels), positive_(positive) {}

  void round(const float* x, const std::byte* before, std::byte* out) {
    for (int i = 0; i < kElems; ++i) x_[i] = std::isfinite(x[i]) ? x[i] : 0;
    Block block{};
    float scales[kGroups], mins[kGroups];
    for (int g = 0; g < kGroups; ++g) {
      const float* const group = x_ + g * kGroup;
      const Group found = kHasMin ? group_with_min<kGroup>(group, levels_, positive_)
                                  : symmetric_group<kGroup>(group, levels_);
      scales[g] = found.scale;
      mins[g] = found.min;
    }
    put_scales(scales, mins, block);
    double error = put_nearest(block);
    const auto take = [&](Block other) {
      const double error_there = put_nearest(other);
      if (!std::isfinite(error_there) || error_there > error) return;
      block = other;
      error = error_there;
    };
    if constexpr (requires { block.exponent; }) {  // the scale was rounded to a power of two
      Block larger = block;
      if (larger.exponent < 254) ++larger.exponent;
      take(larger);
    }
    if (before != nullptr) {
      Block old;
      std::memcpy(&old, before, sizeof(old));
      take(old);
    }
    std::memcpy(out, &block, sizeof(block));
  }

 private:
  static constexpr int kGroups = kElems / kGroup;

  // Gives the block the codes that are nearest with its scales; the sum of squared errors.
  double put_nearest(Block& block) {
    int8_t old_codes[kElems];
    float scales[kGroups], mins[kGroups] = {};
    decode_block(block, {old_codes, scales, mins});
    double error = 0;
    uint8_t stored[kElems];
    for (int g = 0; g < kGroups; ++g) {
      const float* const x = x_ + g * kGroup;
      const float factor = std::isfinite(1 / scales[g]) ? 1 / scales[g] : 0;
      int32_t codes[kGroup];
      float values[kGroup];
      levels_.template nearest<kGroup>(x, mins[g], factor, codes);
      levels_.template values<kGroup>(codes, values);
      for (int i = 0; i < kGroup; ++i) {
        stored[g * kGroup + i] = static_cast<uint8_t>(codes[i]);
        const double off = double{x[i]} - (scales[g] * values[i] - mins[g]);
        error += off * off;
      }
    }
    put_codes(stored, block);
    // Scales of a damaged file, which nothing is near to.
    return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
  }

  const Levels& levels_;
  bool positive_;
  float x_[kElems];
};

template <DType kType, class Block, int kElems, int kGroup, bool kHasMin>
void round_blocks(const Levels& levels, const float* x, int64_t elems, const std::byte* before,
                  std::byte* out) {
  constexpr bool kOffset = kType == DType::Q4_1 || kType == DType::Q5_1;
  BlockRounder<Block, kElems, kGroup, kHasMin> rounder(levels, !kOffset);
  for (int64_t at = 0; at < elems; at += kElems, out += sizeof(Block)) {
    rounder.round(x + at, before, out);
    if (before != nullptr) before += sizeof(Block);
  }
}

template <class Block, auto kConvert>
void convert_row(const Levels&, const float* x, int64_t elems, const std::byte*, std::byte* out) {
  for (int64_t i = 0; i < elems; ++i, out += sizeof(Block)) {
    const Block block{kConvert(x[i])};
    std::memcpy(out, &block, sizeof(block));
  }
}

struct Rounding {
  Levels levels;
  void (*row)(const Levels&, const float*, int64_t, const std::byte*, std::byte*) = nullptr;
};

template <DType kType>
struct BlockElems;
#define KTX_DTYPE(id, name, gguf, elems, bytes) \
  template <>                                   \
  struct BlockElems<DType::id> {                \
    static constexpr int kElems = elems;        \
  };
#include "lib/formats/dtype.def"
#undef KTX_DTYPE

template <DType kType>
struct GroupFacts;
#define KTX_INT8_FORM(id, group, has_min)    \
  template <>                                \
  struct GroupFacts<DType::id> {             \
    static constexpr int kGroup = group;     \
    static constexpr bool kHasMin = has_min; \
  };
#include "lib/formats/int8_forms.def"
#undef KTX_INT8_FORM

Rounding rounding_of(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return {{}, convert_row<BlockF32, [](float x) { return x; }>};
    case DType::F16:
      return {{}, convert_row<BlockF16, float_to_half>};
    case DType::BF16:
      return {{}, convert_row<BlockBF16, float_to_bfloat16>};
#define KTX_ENCODED(id, low, count, table)                                    \
  case DType::id:                                                             \
    return {{low, count, table},                                              \
            round_blocks<DType::id, Block##id, BlockElems<DType::id>::kElems, \
                         GroupFacts<DType::id>::kGroup, GroupFacts<DType::id>::kHasMin>};
#include "lib/formats/encoded_forms.def"
#undef KTX_ENCODED
    default:
      return {};
  }
}

}  // namespace

bool can_quantize(DType dtype) {
  return rounding_of(dtype).row != nullptr;
}

void quantize_row(DType dtype, const float* x, int64_t elems, const std::byte* before,
                  std::byte* out) {
  const Rounding rounding = rounding_of(dtype);
  KTX_ASSERT(rounding.row != nullptr && elems % info(dtype).block_elems == 0);
  rounding.row(rounding.levels, x, elems, before, out);
}

}  // namespace ktx
