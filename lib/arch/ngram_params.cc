// Tables of n-grams before a layer (Qwen4-Exp). A GGUF says the numbers of the hash; a config says
// what they follow from, by the models' own code: multipliers are pseudo-random and odd, and the
// sizes of the hashes consecutive primes.
#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/arch/param_part.h"
#include "lib/support/strings.h"

namespace ktx::arch {
namespace {

constexpr int64_t kMaxRows = INT32_MAX;  // of a table: their numbers are I32

// Steele et al. 2014, "Fast splittable pseudorandom number generators".
constexpr uint64_t kGamma = 0x9E3779B97F4A7C15;
uint64_t splitmix(uint64_t x) {
  x += kGamma;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

bool is_prime(int64_t x) {
  if (x < 4) return x > 1;
  for (int64_t divisor = 2; divisor * divisor <= x; ++divisor) {
    if (x % divisor == 0) return false;
  }
  return true;
}

class NgramParams : ParamPart {
 public:
  explicit NgramParams(const ParamPart& part) : ParamPart(part) {}

  void read() {
    if (!in_.has("ple_layer_ids")) return;
    const auto listed = in_.config().ints("ple_layer_ids");
    if (listed && listed->empty()) return;
    const auto layer = listed && listed->size() == 1 ? std::optional(listed->front())
                                                     : in_.config().i64("ple_layer_ids");
    if (!layer) {
      return in_.fail(
          "'ple_layer_ids' lists several layers: files have one table of n-grams, for one layer");
    }
    if (*layer < 1 || *layer > p_.layers) {
      return in_.fail(fmt::format("'ple_layer_ids' is {}, expected 1 to {}", *layer, p_.layers));
    }
    p_.shapes[static_cast<size_t>(*layer - 1)].ngrams = true;
    p_.ngrams.size = small("ngram_size", 2, kMaxNgramSize);
    p_.ngrams.heads = small("heads_per_ngram", 1, kMaxNgramRows);
    p_.ngram_taps = small("ple_conv_kernel_size", 2, 64);
    const int64_t rows = p_.ngrams.rows();
    if (rows < 1) return;  // said above
    if (rows > kMaxNgramRows) {
      return in_.fail(
          fmt::format("'heads_per_ngram' {} for n-grams of up to {} tokens makes {} "
                      "rows a token, expected at most {}",
                      p_.ngrams.heads, p_.ngrams.size, rows, kMaxNgramRows));
    }
    read_width(rows);
    read_end();
    if (in_.has("ple_layer_multipliers")) {
      read_hash(rows);
    } else {
      make_hash(rows);
    }
    check_hash();
  }

 private:
  void read_width(int64_t rows) {
    if (in_.has("ple_head_dim")) {
      p_.ngram_width = in_.integer("ple_head_dim", 1, kMaxWidth);
      return;
    }
    const int64_t width = in_.integer_or_null("ple_embed_dim", 1, kMaxWidth).value_or(p_.hidden);
    if (width % rows != 0) {
      in_.fail(
          fmt::format("'ple_embed_dim' {} is no multiple of the {} rows of a token", width, rows));
    }
    p_.ngram_width = width / rows;
  }

  // Behind this id nothing is known of those before.
  void read_end() {
    auto end = in_.integer_or_null("ple_eos_token_id", 0, kMaxVocab);
    if (!end) {
      const auto listed = in_.config().ints("eos_token_id");
      end = listed && !listed->empty() ? listed->front() : in_.config().i64("eos_token_id");
    }
    if (!end || *end < 0 || *end >= p_.vocab) {
      return in_.fail(
          fmt::format("'eos_token_id' is {}, expected an id below {}: n-grams end there",
                      end ? std::to_string(*end) : "missing", p_.vocab));
    }
    p_.ngrams.end = static_cast<int32_t>(*end);
  }

  void read_hash(int64_t rows) {
    p_.ngrams.multipliers = numbers("ple_layer_multipliers", p_.ngrams.size);
    p_.ngrams.sizes = numbers("ple_head_vocab_sizes", rows);
    p_.ngrams.offsets = numbers("ple_head_offsets", rows);
    p_.ngram_rows = in_.integer("ple_table_rows", 1, kMaxRows);
  }

  std::vector<uint64_t> numbers(std::string_view key, int64_t count) {
    std::vector<uint64_t> out;
    for (const std::string& text : in_.config().strings(key).value_or(std::vector<std::string>())) {
      uint64_t number = 0;
      const char* const last = text.data() + text.size();
      const auto [end, error] = std::from_chars(text.data(), last, number);
      if (error != std::errc() || end != last) break;
      out.push_back(number);
    }
    if (std::ssize(out) == count) return out;
    in_.fail(fmt::format("'{}' has {} whole numbers, expected {}", key, out.size(), count));
    return std::vector<uint64_t>(static_cast<size_t>(count), 1);
  }

  void make_hash(int64_t rows) {
    const auto most = (uint64_t{1} << 63) - 1;
    const uint64_t half = std::max<uint64_t>(most / vocab() / 2, 1);
    const auto seed = static_cast<uint64_t>(in_.integer("seed", 0, INT64_MAX));
    for (int32_t i = 0; i < p_.ngrams.size; ++i) {
      const uint64_t bits = splitmix(seed + kGamma * static_cast<uint64_t>(i + 1));
      p_.ngrams.multipliers.push_back(2 * (bits % half) + 1);
    }
    int64_t prime = in_.integer("ngram_vocab_size_base", 1, kMaxRows / rows) - 1;
    int64_t all = 0;
    for (int64_t i = 0; i < rows; ++i) {
      do ++prime;
      while (!is_prime(prime));
      p_.ngrams.sizes.push_back(static_cast<uint64_t>(prime));
      p_.ngrams.offsets.push_back(static_cast<uint64_t>(all));
      all += prime;
    }
    const int64_t unit = in_.integer("make_ngram_vocab_size_divisible_by", 1, kMaxWidth);
    p_.ngram_rows = (all + unit - 1) / std::max<int64_t>(unit, 1) * unit;
  }

  uint64_t vocab() const { return static_cast<uint64_t>(std::max<int64_t>(p_.vocab, 1)); }

  void check_hash() {
    const auto rows = static_cast<uint64_t>(p_.ngram_rows);
    for (size_t i = 0; i < p_.ngrams.sizes.size(); ++i) {
      const uint64_t size = p_.ngrams.sizes[i], offset = p_.ngrams.offsets[i];
      if (size > 0 && size <= rows && offset <= rows - size) continue;
      return in_.fail(fmt::format("a hash of n-grams has rows {} to {}, of a table of {}", offset,
                                  offset + size, rows));
    }
    const uint64_t most = ((uint64_t{1} << 63) - 1) / vocab();
    for (const uint64_t multiplier : p_.ngrams.multipliers) {
      if (multiplier <= most) continue;
      return in_.fail(
          fmt::format("'ple_layer_multipliers' has {}, expected at most {} with a vocabulary of {}",
                      multiplier, most, p_.vocab));
    }
  }
};

}  // namespace

void read_ngrams(const ParamPart& part) {
  NgramParams(part).read();
}

}  // namespace ktx::arch
