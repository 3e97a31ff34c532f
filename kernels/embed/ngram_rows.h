// Which rows of a table of n-grams a token reads (EmbedNgramsAttrs in lib/ops/step_attrs.h has the
// formula).
//
//   NgramHash hash(attrs, digits);
//   hash.rows(last, rows);        last[i]: the id of i tokens before this one
//
// Weights are floats: each number of the hash stands there as kNgramDigits digits to base 2^16, the
// last one first. The numbers are multipliers[size], then sizes[rows], then offsets[rows].
//
// Products wrap at 2^64; a compiler sees to it that none reaches 2^63 (the models' code has signed
// numbers). No range is checked here: fits() says whether all rows are inside of a table.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/ops/step_attrs.h"

namespace ktx::kernels {

inline void append_ngram_digits(uint64_t number, std::vector<float>& digits) {
  for (int32_t i = 0; i < kNgramDigits; ++i, number >>= 16) {
    digits.push_back(static_cast<float>(number & 0xFFFF));
  }
}

class NgramHash {
 public:
  NgramHash() = default;
  NgramHash(const EmbedNgramsAttrs& attrs, const float* digits) : attrs_(attrs) {
    const auto take = [&](int64_t count, std::vector<uint64_t>& to) {
      for (int64_t i = 0; i < count; ++i, digits += kNgramDigits) {
        uint64_t number = 0;
        for (int32_t d = kNgramDigits; d-- > 0;) number = number << 16 | digit(digits[d]);
        to.push_back(number);
      }
    };
    take(attrs.size, multipliers_);
    take(attrs.rows(), sizes_);
    take(attrs.rows(), offsets_);
  }

  // Whether each row that rows() gives is in a table of so many.
  bool fits(int64_t table_rows) const {
    const auto most = static_cast<uint64_t>(table_rows);
    for (size_t i = 0; i < sizes_.size(); ++i) {
      if (sizes_[i] == 0 || sizes_[i] > most || offsets_[i] > most - sizes_[i]) return false;
    }
    return true;
  }

  // `last`: [size] ids, that of the token first.
  void rows(std::span<const int32_t> last, int32_t* out) const {
    const auto product = [&](size_t i) { return multipliers_[i] * static_cast<uint64_t>(last[i]); };
    uint64_t mixed = product(0);
    size_t row = 0;
    for (size_t n = 1; n < multipliers_.size(); ++n) {
      mixed ^= product(n);
      for (int32_t head = 0; head < attrs_.heads; ++head, ++row) {
        out[row] = static_cast<int32_t>(offsets_[row] + mixed % sizes_[row]);
      }
    }
  }

 private:
  // A digit, whatever the bytes are.
  static uint64_t digit(float x) { return x >= 0 && x < 65536 ? static_cast<uint64_t>(x) : 0; }

  EmbedNgramsAttrs attrs_;
  std::vector<uint64_t> multipliers_, sizes_, offsets_;
};

}  // namespace ktx::kernels
