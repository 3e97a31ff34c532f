#include "tools/dev/synth/random_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "lib/formats/blocks.h"

namespace ktx::synth {
namespace {

constexpr float kMinScale = 1e-4f;  // comfortably a normal half (those end at 6.1e-5)
constexpr size_t kRunBlocks =
    1024;  // of a tensor, and of a page; a multiple of 8 blocks is one of 8 bytes
constexpr size_t kSampleBlocks = 512;  // by which scales are chosen

// A half of few mantissa bits, so that small multiples of it are exact.
uint16_t round_half(float value) {
  return float_to_half(value) & 0xFFE0;
}

// The value `value` with a random sign.
int8_t signed_scale(int value, uint64_t bits) {
  return static_cast<int8_t>(bits & 1 ? value : -value);
}

// Puts scale6 and min6 of Q4_K and Q5_K, all groups alike in kind: the min is the
// scale, and the block's `min` makes that zero mean.
void pack_scale_mins(const uint8_t (&scale6)[8], uint8_t (&scales)[12]) {
  for (int g = 0; g < 4; ++g) {
    scales[g] = static_cast<uint8_t>(scale6[g] | (scale6[g + 4] >> 4) << 6);
    scales[4 + g] = scales[g];
    scales[8 + g] = static_cast<uint8_t>((scale6[g + 4] & 15) | (scale6[g + 4] & 15) << 4);
  }
}

// patch(block, unit, spread, bits) makes a block of random bytes usable: its scale
// becomes `unit`, its group scales (where it has some) are spread .. 2 * spread - 1,
// and what it needs for zero mean is set.
template <class Block>
void set_sign(Block& block, float unit, int, uint64_t bits) {
  block.scale = round_half(bits & 1 ? unit : -unit);
}

void patch(BlockQ4_0& block, float unit, int spread, uint64_t bits) {
  set_sign(block, unit, spread, bits);
}
void patch(BlockQ5_0& block, float unit, int spread, uint64_t bits) {
  set_sign(block, unit, spread, bits);
}
void patch(BlockQ4_1& block, float unit, int, uint64_t) {
  block.scale = round_half(unit);
  block.offset = float_to_half(-7.5f * half_to_float(block.scale));
}
void patch(BlockQ5_1& block, float unit, int, uint64_t) {
  block.scale = round_half(unit);
  block.offset = float_to_half(-15.5f * half_to_float(block.scale));
}
void patch(BlockQ8_0& block, float unit, int, uint64_t) {
  block.scale = round_half(unit);
  for (int8_t& code : block.codes) code = std::max<int8_t>(code, -127);
}
// unit is a power of two here: a block has nothing finer.
void patch(BlockMXFP4& block, float unit, int, uint64_t bits) {
  block.exponent = static_cast<uint8_t>(std::clamp(127 + std::ilogb(unit) + int(bits & 1), 1, 254));
}
// The number of a scale that is next to `unit`, but never 0; the groups are alike.
void patch(BlockNVFP4& block, float unit, int, uint64_t) {
  // In steps of its exponent; 8 of them and more are a normal number.
  const int exponent = std::max(std::ilogb(unit) + 7, 1);
  const auto steps = static_cast<int>(std::lround(std::ldexp(unit, 10 - exponent)));
  const auto bits = static_cast<uint8_t>(std::clamp((exponent - 1) * 8 + steps, 1, 0x7e));
  std::memset(block.scales, bits, sizeof block.scales);
}
void patch(BlockQ1_0& block, float unit, int, uint64_t) {
  block.scale = round_half(unit);
}
// Three of the four codes have zero mean.
void patch(BlockQ2_0& block, float unit, int, uint64_t) {
  block.scale = round_half(unit);
  for (uint8_t& codes : block.codes) {
    const auto threes = static_cast<uint8_t>(codes & (codes >> 1) & 0x55);
    codes = static_cast<uint8_t>(codes & ~(threes | threes << 1)) | threes;  // 3 becomes 1
  }
}
void patch(BlockQ2_K& block, float unit, int spread, uint64_t bits) {
  block.scale = round_half(unit);
  block.min = float_to_half(1.5f * half_to_float(block.scale));
  for (uint8_t& scale : block.scales) {
    const auto value = static_cast<uint8_t>(std::min<uint64_t>(15, spread + bits % spread));
    scale = static_cast<uint8_t>(value | value << 4);
    bits = mix_bits(bits);
  }
}
void patch(BlockQ3_K& block, float unit, int spread, uint64_t bits) {
  block.scale = round_half(unit);
  std::memset(block.scales, 0, sizeof block.scales);
  for (int g = 0; g < 16; ++g) {
    const int magnitude = spread + static_cast<int>((bits >> 1) % static_cast<uint64_t>(spread));
    const int scale6 = 32 + signed_scale(std::min(std::abs(magnitude), 31), bits);
    block.scales[g % 8] |= static_cast<uint8_t>((scale6 & 15) << (g / 8 * 4));
    block.scales[8 + g % 4] |= static_cast<uint8_t>((scale6 >> 4) << (g / 4 * 2));
    bits = mix_bits(bits);
  }
}
template <class Block>
void patch_scale_min(Block& block, float middle, float unit, int spread, uint64_t bits) {
  block.scale = round_half(unit);
  block.min = float_to_half(middle * half_to_float(block.scale));
  uint8_t scale6[8];
  for (uint8_t& scale : scale6) {
    scale = static_cast<uint8_t>(std::min<uint64_t>(63, spread + bits % spread));
    bits = mix_bits(bits);
  }
  pack_scale_mins(scale6, block.scales);
}
void patch(BlockQ4_K& block, float unit, int spread, uint64_t bits) {
  patch_scale_min(block, 7.5f, unit, spread, bits);
}
void patch(BlockQ5_K& block, float unit, int spread, uint64_t bits) {
  patch_scale_min(block, 15.5f, unit, spread, bits);
}
void patch(BlockQ6_K& block, float unit, int spread, uint64_t bits) {
  block.scale = round_half(unit);
  for (int8_t& scale : block.scales) {
    scale =
        signed_scale(spread + static_cast<int>((bits >> 1) % static_cast<uint64_t>(spread)), bits);
    bits = mix_bits(bits);
  }
}
void patch(BlockIQ4_NL& block, float unit, int spread, uint64_t bits) {
  set_sign(block, unit, spread, bits);
}
void patch(BlockIQ4_XS& block, float unit, int spread, uint64_t bits) {
  block.scale = round_half(unit);
  block.scales_high = 0;
  std::memset(block.scales_low, 0, sizeof block.scales_low);
  for (int g = 0; g < 8; ++g) {
    const int magnitude =
        std::min(31, spread + static_cast<int>((bits >> 1) % static_cast<uint64_t>(spread)));
    const int scale6 = 32 + signed_scale(magnitude, bits);
    block.scales_low[g / 2] |= static_cast<uint8_t>((scale6 & 15) << (g % 2 * 4));
    block.scales_high = static_cast<uint16_t>(block.scales_high | (scale6 >> 4) << (2 * g));
    bits = mix_bits(bits);
  }
}
// Two bits a weight, of which 3 is no trit.
void patch(BlockTQ2_0& block, float unit, int, uint64_t) {
  block.scale = round_half(unit);
  for (uint8_t& codes : block.codes) {
    const auto threes = static_cast<uint8_t>(codes & (codes >> 1) & 0x55);
    codes = static_cast<uint8_t>(codes & ~(threes | threes << 1)) | threes;  // 3 becomes 1
  }
}
// The signs of the grids are random bits already; so are group scales, unless
// they would make the weights too large.
void patch(BlockIQ3_XXS& block, float unit, int spread, uint64_t) {
  block.scale = round_half(unit);
  for (int g = 0; g < 8 && spread == 1; ++g) block.signs_and_scales[4 * g + 3] &= 15;
}
void patch(BlockIQ3_S& block, float unit, int spread, uint64_t) {
  block.scale = round_half(unit);
  if (spread == 1) std::memset(block.scales, 0, sizeof block.scales);
}
void patch(BlockIQ1_M& block, float unit, int, uint64_t) {
  const uint16_t scale = round_half(unit);
  for (int word = 0; word < 4; ++word) {
    uint8_t& high = block.scales[2 * word + 1];
    high = static_cast<uint8_t>((high & 15) | (scale >> (4 * word) & 15) << 4);
  }
}
template <class Block>
void patch(Block& block, float unit, int, uint64_t) {
  block.scale = round_half(unit);
}
void patch(BlockF32&, float, int, uint64_t) {}
void patch(BlockF16&, float, int, uint64_t) {}
void patch(BlockBF16&, float, int, uint64_t) {}
void patch(BlockI32&, float, int, uint64_t) {}

// `seed` is that of the first block's place in the pool.
template <class Block>
void patch_all(std::span<std::byte> bytes, float unit, int spread, uint64_t seed) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(Block)) {
    Block block;
    std::memcpy(&block, &bytes[at], sizeof block);
    patch(block, unit, spread, mix_bits(seed + at));
    std::memcpy(&bytes[at], &block, sizeof block);
  }
}

using PatchAll = void (*)(std::span<std::byte>, float, int, uint64_t);

PatchAll patcher(DType dtype) {
  constexpr PatchAll kPatchers[] = {
#define KTX_DTYPE(id, name, gguf, elems, bytes) patch_all<Block##id>,
#include "lib/formats/dtype.def"
#undef KTX_DTYPE
  };
  return kPatchers[static_cast<int>(dtype)];
}

float deviation(DType dtype, std::span<const std::byte> bytes) {
  const DTypeInfo& row = info(dtype);
  const size_t blocks = bytes.size() / static_cast<size_t>(row.block_bytes);
  std::vector<float> values(blocks * static_cast<size_t>(row.block_elems));
  dequantize_row(dtype, bytes.data(), static_cast<int64_t>(values.size()), values.data());
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return static_cast<float>(std::sqrt(sum / static_cast<double>(values.size())));
}

bool is_plain(DType dtype) {
  return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16;
}

// `first`: the place of `bytes` in the pool.
void fill_plain(DType dtype, float sigma, uint64_t seed, size_t first, std::span<std::byte> bytes) {
  const auto size = static_cast<size_t>(info(dtype).block_bytes);
  for (size_t at = 0; at < bytes.size(); at += size) {
    const float value = sigma * normal_from_bits(mix_bits(seed ^ mix_bits(first + at)));
    const uint16_t half = dtype == DType::F16 ? float_to_half(value) : float_to_bfloat16(value);
    std::memcpy(&bytes[at], dtype == DType::F32 ? static_cast<const void*>(&value) : &half, size);
  }
}

}  // namespace

float normal_from_bits(uint64_t bits) {
  // The sum of four uniform numbers: variance 4/12 in units of 65536.
  float sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<float>(bits >> (16 * i) & 0xFFFF);
  constexpr float kDeviation = 65536.f * 0.57735026919f;
  return (sum - 2.f * 65535.f) / kDeviation;
}

BlockPool::BlockPool(DType dtype, float sigma, uint64_t seed, size_t size_bytes)
    : dtype_(dtype),
      sigma_(sigma),
      seed_(seed),
      block_bytes_(static_cast<size_t>(info(dtype).block_bytes)),
      size_bytes_(std::max<size_t>(size_bytes / block_bytes_, 1) * block_bytes_),
      bytes_(std::make_unique_for_overwrite<std::byte[]>(size_bytes_)),
      made_(std::make_unique<std::once_flag[]>(size_bytes_ / (kRunBlocks * block_bytes_) + 1)) {
  if (!is_plain(dtype)) choose_scales();
}

std::span<std::byte> BlockPool::page(size_t index) const {
  const size_t first = index * kRunBlocks * block_bytes_;
  return {&bytes_[first], std::min(kRunBlocks * block_bytes_, size_bytes_ - first)};
}

void BlockPool::make_bits(size_t index) const {
  const std::span<std::byte> bytes = page(index);
  const size_t first = index * kRunBlocks * block_bytes_;
  for (size_t at = 0; at < bytes.size(); at += 8) {
    const uint64_t bits = mix_bits(seed_ ^ mix_bits(first + at));
    std::memcpy(&bytes[at], &bits, std::min<size_t>(8, bytes.size() - at));
  }
}

// Group scales as large as the block's own scale allows without being denormal, by the first page,
// which is made here. 8 is the most that the four bits of Q2_K hold twice.
void BlockPool::choose_scales() {
  make_bits(0);
  const PatchAll patch_bytes = patcher(dtype_);
  const std::span<std::byte> first = page(0);
  const std::span<std::byte> sample =
      first.first(std::min(first.size(), kSampleBlocks * block_bytes_));
  int spread = dtype_ == DType::Q2_K ? 8 : dtype_ == DType::Q6_K ? 32 : 16;
  for (; spread >= 1; spread /= 2) {
    patch_bytes(sample, 1.f, spread, seed_);
    unit_ = sigma_ / deviation(dtype_, sample);
    if (unit_ >= kMinScale) break;
  }
  unit_ = std::max(unit_, kMinScale);
  spread_ = std::max(spread, 1);
  std::call_once(made_[0], [&] { patch_bytes(first, unit_, spread_, seed_); });
}

void BlockPool::make(size_t first_block, size_t blocks) const {
  const size_t last = (first_block + blocks - 1) / kRunBlocks;
  for (size_t index = first_block / kRunBlocks; index <= last; ++index) {
    std::call_once(made_[index], [&] {
      const size_t first = index * kRunBlocks * block_bytes_;
      if (is_plain(dtype_)) {
        fill_plain(dtype_, sigma_, seed_, first, page(index));
      } else {
        make_bits(index);
        patcher(dtype_)(page(index), unit_, spread_, seed_ + first);
      }
    });
  }
}

std::span<const std::byte> BlockPool::bytes() const {
  make(0, size_bytes_ / block_bytes_);
  return {bytes_.get(), size_bytes_};
}

void BlockPool::fill(uint64_t tensor_seed, uint64_t offset, std::span<std::byte> out) const {
  const size_t pool_blocks = size_bytes_ / block_bytes_;
  const size_t run_blocks = std::min(kRunBlocks, pool_blocks);
  uint64_t block = offset / block_bytes_;
  while (!out.empty()) {
    const uint64_t run = block / run_blocks, skip = block % run_blocks;
    const uint64_t start = mix_bits(tensor_seed ^ mix_bits(run)) % (pool_blocks - run_blocks + 1);
    const size_t size = std::min<size_t>(out.size(), (run_blocks - skip) * block_bytes_);
    make(start + skip, size / block_bytes_);
    std::memcpy(out.data(), &bytes_[(start + skip) * block_bytes_], size);
    out = out.subspan(size);
    block += size / block_bytes_;
  }
}

}  // namespace ktx::synth
