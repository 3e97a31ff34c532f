#include "lib/text/grammar/number_multiples.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace ktx::text::grammar {
namespace {

constexpr int64_t kMost = 999'999'999'999'999;  // 15 digits

int64_t whole_part(const Decimal& number) {
  const auto value = static_cast<int64_t>(std::stoll(number.whole));  // 16 digits at most
  return number.negative ? -value : value;
}
// The least and the greatest whole number within a bound.
int64_t least(const Decimal& low, bool open) {
  const bool up = low.fraction.empty() ? open : !low.negative;
  return whole_part(low) + (up ? 1 : 0);
}
int64_t greatest(const Decimal& high, bool open) {
  const bool down = high.fraction.empty() ? open : high.negative;
  return whole_part(high) - (down ? 1 : 0);
}

class Multiples {
 public:
  Multiples(GrammarRules& rules, int64_t step) : g_(rules), step_(step) {}

  // 0 <= low
  Result<int> from(int64_t low, int64_t high) {
    const int64_t first = (low + step_ - 1) / step_ * step_;
    if (first > high) return g_.nothing();
    std::vector<int> ways;
    if ((high - first) / step_ < kMaxListedMultiples) {
      list(first, high, ways);
      return g_.alternatives(std::move(ways));
    }
    int digits = 1;
    int64_t power = 10;
    while (power % step_ != 0 && digits < kMaxLastDigits) power *= 10, ++digits;
    if (power % step_ != 0) {
      return Error{fmt::format(
          "'multipleOf' of {} within these bounds is not supported; give bounds with at most {} "
          "multiples between them",
          step_, kMaxListedMultiples)};
    }
    // Whole tens (hundreds, …), and what stands before and behind them.
    const int64_t first_ten = std::max<int64_t>(1, (low + power - 1) / power);
    const int64_t last_ten = (high + 1) / power - 1;
    list(first, first_ten * power - 1, ways);
    list((last_ten + 1) * power, high, ways);
    std::vector<int> endings;
    for (int64_t end = 0; end < power; end += step_) {
      endings.push_back(g_.text(fmt::format("{:0{}}", end, digits)));
    }
    NumberBounds tens;
    tens.integer = true;
    tens.low = parse_decimal(std::to_string(first_ten));
    tens.high = parse_decimal(std::to_string(last_ten));
    ways.push_back(g_.sequence({number_in_range(g_, tens), g_.alternatives(std::move(endings))}));
    return g_.alternatives(std::move(ways));
  }

 private:
  static constexpr int kMaxLastDigits = 2;  // 3 are 100 times as many states

  void list(int64_t from, int64_t to, std::vector<int>& ways) {
    for (int64_t value = from; value <= to; value += step_) {
      ways.push_back(g_.text(std::to_string(value)));
    }
  }

  GrammarRules& g_;
  const int64_t step_;
};

}  // namespace

Result<int> whole_multiples(GrammarRules& g, const NumberBounds& bounds, int64_t step) {
  int64_t low = bounds.low ? least(*bounds.low, bounds.low_open) : -kMost;
  int64_t high = bounds.high ? greatest(*bounds.high, bounds.high_open) : kMost;
  low = std::max(low, -kMost);
  high = std::min(high, kMost);
  std::vector<int> ways;
  if (high >= 0 && low <= high) {
    ways.push_back(KTX_TRY(Multiples(g, step).from(std::max<int64_t>(low, 0), high)));
  }
  if (low < 0 && low <= high) {
    const int below = KTX_TRY(Multiples(g, step).from(std::max<int64_t>(-high, 1), -low));
    ways.push_back(g.sequence({g.text("-"), below}));
  }
  return g.alternatives(std::move(ways));
}

}  // namespace ktx::text::grammar
