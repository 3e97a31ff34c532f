#include "lib/text/grammar/number_multiples.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace ktx::text::grammar {
namespace {

constexpr int64_t kMost = 999'999'999'999'999'999;
// Without a bound: the precision of doubles.
constexpr int64_t kMostFree = 999'999'999'999'999;
constexpr size_t kMostDigits = 18;

int64_t whole_part(const Decimal& number) {
  const int64_t value = number.whole.size() > kMostDigits ? kMost + 1 : std::stoll(number.whole);
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
      return Error{fmt::format("'multipleOf' of {} within these bounds has more than {} values",
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
  int64_t low = bounds.low ? least(*bounds.low, bounds.low_open) : -kMostFree;
  int64_t high = bounds.high ? greatest(*bounds.high, bounds.high_open) : kMostFree;
  if (!bounds.high && low > kMostFree) high = kMost;
  if (!bounds.low && high < -kMostFree) low = -kMost;
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

Result<RegularSet> multiples(const Decimal& step) {
  // In units of its last digit: a number is a multiple if its digits up to there are one of
  // `digits`, and only zeros stand behind them.
  const int64_t places = static_cast<int64_t>(step.fraction.size());
  const std::string text = step.whole + step.fraction;
  const size_t first = text.find_first_not_of('0');
  if (first == std::string::npos || text.size() - first > 4 ||
      std::stoll(text.substr(first)) > kMaxStepDigits) {
    return Error{
        fmt::format("'multipleOf' of {}{}{} is not supported; it has more than {} units of "
                    "its last digit",
                    step.whole, step.fraction.empty() ? "" : ".", step.fraction, kMaxStepDigits)};
  }
  const auto digits = static_cast<uint32_t>(std::stoll(text.substr(first)));
  // State 0: the begin; 1: behind the sign; then a row of remainders for each place of a digit: 0
  // is the whole part, `places` the last one of the fraction; the last two: zeros behind it.
  const auto row = [&](int64_t place, uint32_t rest) {
    return static_cast<uint32_t>(2 + place * digits + rest);
  };
  RegularSet out;
  const uint32_t point = row(places + 1, 0), zeros = point + 1;
  // A point needs a digit behind it: one state for each remainder at which it may stand.
  const uint32_t points = zeros + 1;
  out.states.resize(points + digits);
  const auto add_digits = [&](uint32_t from, int64_t place, uint32_t rest) {
    for (uint32_t d = 0; d < 10; ++d) {
      const uint32_t code = '0' + d;
      out.states[from].edges.push_back({code, code, row(place, (rest * 10 + d) % digits)});
    }
  };
  out.states[0].edges.push_back({'-', '-', 1});
  add_digits(0, 0, 0);
  add_digits(1, 0, 0);
  for (uint32_t rest = 0; rest < digits; ++rest) {
    uint64_t whole = rest;
    for (int64_t place = places; place >= 0; --place) {
      // `whole`: the remainder once all places behind are zeros.
      RegularSet::State& state = out.states[row(place, rest)];
      state.accepts = whole % digits == 0;
      whole = whole * 10 % digits;
      if (place > 0 && place < places) add_digits(row(place, rest), place + 1, rest);
    }
    const uint32_t whole_state = row(0, rest);
    if (places > 0) {
      out.states[whole_state].edges.push_back({'.', '.', points + rest});
      add_digits(points + rest, 1, rest);
    } else if (rest == 0) {
      out.states[whole_state].edges.push_back({'.', '.', point});
    }
    add_digits(whole_state, 0, rest);
  }
  if (places > 0) out.states[row(places, 0)].edges.push_back({'0', '0', zeros});
  out.states[point].edges.push_back({'0', '0', zeros});
  out.states[zeros].edges.push_back({'0', '0', zeros});
  out.states[zeros].accepts = true;
  return out;
}

}  // namespace ktx::text::grammar
