#include "lib/text/grammar/number_ranges.h"

#include <algorithm>
#include <utility>

namespace ktx::text::grammar {
namespace {

// Numbers that are not negative, from `low` to `high` (none: no limit), written by
// comparing digit by digit: as long as all digits so far equal a bound's, the next is
// limited by the bound's next.
class Digits {
 public:
  Digits(GrammarRules& rules, const Decimal& low, bool low_open, std::optional<Decimal> high,
         bool high_open, bool integer)
      : g_(rules),
        low_(low),
        high_(std::move(high)),
        low_open_(low_open),
        high_open_(high_open),
        integer_(integer) {}

  int build() {
    const size_t shortest = low_.whole.size();
    const size_t longest = high_ ? high_->whole.size() : std::max(kFreeDigits, shortest + 1);
    std::vector<int> ways;
    // As many digits as a bound has, and between them any.
    ways.push_back(whole(0, shortest, true, high_ && shortest == longest));
    const size_t most = std::min(high_ ? longest - 1 : longest, kMaxWholeDigits);
    if (shortest < most) {
      const int rest =
          g_.repeat(digit('0', '9'), static_cast<int>(shortest), static_cast<int>(most) - 1);
      ways.push_back(g_.sequence({digit('1', '9'), rest, behind_whole(false, false)}));
    }
    if (high_ && shortest < longest) ways.push_back(whole(0, longest, false, true));
    return g_.alternatives(std::move(ways));
  }

 private:
  int digit(char from, char to) {
    if (from > to) return g_.nothing();
    return g_.one_of({{static_cast<uint32_t>(from), static_cast<uint32_t>(to)}});
  }
  // What may follow when the next digit lies within [from, to], and with it the ties
  // to the bounds: up to four groups of digits that go on alike.
  template <class Next>
  int ways(char from, char to, std::optional<char> low, std::optional<char> high,
           const Next& next) {
    std::vector<int> out;
    if (low) from = std::max(from, *low);
    if (high) to = std::min(to, *high);
    for (char d = from; d <= to;) {
      const bool at_low = low && d == *low;
      const bool at_high = high && d == *high;
      char last = d;
      if (!at_low && !at_high) last = high && to == *high ? static_cast<char>(to - 1) : to;
      out.push_back(g_.sequence({digit(d, last), next(at_low, at_high)}));
      d = static_cast<char>(last + 1);
    }
    return g_.alternatives(std::move(out));
  }
  int whole(size_t at, size_t length, bool at_low, bool at_high) {
    if (at == length) return behind_whole(at_low, at_high);
    if (!at_low && !at_high) {
      const int rest = static_cast<int>(length - at);
      const int first = at == 0 && length > 1 ? digit('1', '9') : digit('0', '9');
      return g_.sequence(
          {first, g_.repeat(digit('0', '9'), rest - 1, rest - 1), behind_whole(false, false)});
    }
    const char from = at == 0 && length > 1 ? '1' : '0';
    return ways(from, '9', at_low ? std::optional(low_.whole[at]) : std::nullopt,
                at_high ? std::optional(high_->whole[at]) : std::nullopt,
                [&](bool low, bool high) { return whole(at + 1, length, low, high); });
  }
  int behind_whole(bool at_low, bool at_high) {
    const bool may_end = ends_within(0, at_low, at_high);
    std::vector<int> out;
    if (may_end) out.push_back(g_.text(""));
    if (!integer_) out.push_back(g_.sequence({g_.text("."), fraction(0, at_low, at_high)}));
    return g_.alternatives(std::move(out));
  }
  // The number ends behind `at` digits of the fraction that equal the bounds'.
  bool ends_within(size_t at, bool at_low, bool at_high) const {
    const bool low_is_more = at < low_.fraction.size();
    const bool high_is_more = high_ && at < high_->fraction.size();
    if (at_low && (low_is_more || low_open_)) return false;
    return !(at_high && !high_is_more && high_open_);
  }
  // At least one more digit of the fraction.
  int fraction(size_t at, bool at_low, bool at_high) {
    if (at == kMaxFraction) return g_.nothing();
    if (!at_low && !at_high) {
      return g_.repeat(digit('0', '9'), 1, static_cast<int>(kMaxFraction - at));
    }
    const auto digit_of = [&](const std::string& bound) {
      return at < bound.size() ? bound[at] : '0';
    };
    return ways('0', '9', at_low ? std::optional(digit_of(low_.fraction)) : std::nullopt,
                at_high ? std::optional(digit_of(high_->fraction)) : std::nullopt,
                [&](bool low, bool high) {
                  std::vector<int> out;
                  if (ends_within(at + 1, low, high)) out.push_back(g_.text(""));
                  out.push_back(fraction(at + 1, low, high));
                  return g_.alternatives(std::move(out));
                });
  }

  GrammarRules& g_;
  const Decimal low_;
  const std::optional<Decimal> high_;
  bool low_open_, high_open_, integer_;
};

}  // namespace

int number_in_range(GrammarRules& g, const NumberBounds& b) {
  std::vector<int> ways;
  const Decimal zero;
  // At or above zero.
  if (!b.high || !b.high->negative) {
    const bool from_zero = !b.low || b.low->negative;
    const Decimal low = from_zero ? zero : *b.low;
    const bool low_open = !from_zero && b.low_open;
    if (!b.high || compare_size(low, *b.high) <= 0) {
      ways.push_back(Digits(g, low, low_open, b.high, b.high_open, b.integer).build());
    }
  }
  // Below zero: the same on the other side of it.
  if (!b.low || b.low->negative) {
    const bool from_zero = !b.high || !b.high->negative;
    const Decimal low = from_zero ? zero : *b.high;
    const bool low_open = from_zero || b.high_open;
    if (!b.low || compare_size(low, *b.low) <= 0) {
      ways.push_back(g.sequence(
          {g.text("-"), Digits(g, low, low_open, b.low, b.low_open, b.integer).build()}));
    }
  }
  return g.alternatives(std::move(ways));
}

}  // namespace ktx::text::grammar
