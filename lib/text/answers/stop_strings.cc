#include "lib/text/answers/stop_strings.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ktx::text {

Result<StopStrings> StopStrings::create(std::vector<std::string> strings) {
  if (strings.size() > kMaxStopStrings) {
    return Error{fmt::format("{} stop strings given; at most {} are allowed", strings.size(),
                             kMaxStopStrings)};
  }
  StopStrings stop;
  for (std::string& string : strings) {
    if (string.empty()) return Error{"a stop string is empty; leave it out"};
    if (string.size() > kMaxStopStringBytes) {
      return Error{fmt::format("a stop string has {} bytes; at most {} are allowed", string.size(),
                               kMaxStopStringBytes)};
    }
    Matcher matcher;
    matcher.fallback.assign(string.size() + 1, 0);
    for (size_t i = 1, n = 0; i < string.size(); ++i) {
      while (n > 0 && string[i] != string[n]) n = matcher.fallback[n];
      if (string[i] == string[n]) ++n;
      matcher.fallback[i + 1] = n;
    }
    matcher.string = std::move(string);
    stop.matchers_.push_back(std::move(matcher));
  }
  return stop;
}

void StopStrings::Matcher::step(char byte) {
  while (matched > 0 && byte != string[matched]) matched = fallback[matched];
  if (byte == string[matched]) ++matched;
}

std::string StopStrings::add(std::string_view text) {
  if (stopped()) return "";
  for (const char byte : text) {
    held_ += byte;
    size_t longest = 0;
    for (size_t i = 0; i < matchers_.size(); ++i) {
      Matcher& matcher = matchers_[i];
      matcher.step(byte);
      if (matcher.matched == matcher.string.size() && matcher.matched > longest) {
        longest = matcher.matched;
        stopped_by_ = static_cast<int>(i);
      }
    }
    if (stopped()) {
      held_.resize(held_.size() - longest);
      return std::exchange(held_, {});
    }
  }
  size_t keep = 0;
  for (const Matcher& matcher : matchers_) keep = std::max(keep, matcher.matched);
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return out;
}

std::string StopStrings::finish() {
  return std::exchange(held_, {});
}

}  // namespace ktx::text
