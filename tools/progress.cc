#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "lib/support/env.h"
#include "lib/support/strings.h"
#include "tools/terminal_columns.h"

namespace ktx::tools {
namespace {

constexpr double kTerminalInterval = 0.1;  // seconds between redraws
constexpr double kPlainInterval = 10;      // seconds between lines
constexpr double kJsonInterval = 0.2;
constexpr size_t kBarWidth = 30;
constexpr size_t kLeastBarWidth = 8;

std::string eta_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  return whole < 60 ? fmt::format("{} s", whole)
                    : fmt::format("{}:{:02} min", whole / 60, whole % 60);
}

// The most that `columns` hold, with a bar in front where there is room for one: a line that
// wraps could not be drawn over.
//
//   [#######...........] packing 284.00 MiB of 643.75 MiB, 505.57 MiB/s, 1 s left
//   packing 44 %, 1 s left
std::string terminal_line(const std::string& text, const std::string& short_text, double share,
                          size_t columns) {
  std::string line = text.size() <= columns ? text : short_text.substr(0, columns);
  const size_t frame = 3;  // "[] "
  const size_t free = columns - line.size();
  const size_t width = std::min(kBarWidth, free < frame ? 0 : free - frame);
  if (width < kLeastBarWidth) return line;
  const auto filled = static_cast<size_t>(static_cast<double>(width) * share);
  return fmt::format("[{}{}] {}", std::string(filled, '#'), std::string(width - filled, '.'), line);
}

}  // namespace

bool progress_is_json() {
  return env("KTX_PROGRESS") == "json";
}

Progress::Progress(std::string what, bool quiet, Unit unit)
    : what_(std::move(what)), unit_(unit), quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {
  if (terminal_ && env("TERM") == "dumb") quiet_ = true;
}

std::string Progress::amount(uint64_t count) const {
  return unit_ == Unit::Bytes ? human_bytes(count) : fmt::format("{} tokens", count);
}

void Progress::update(uint64_t done, uint64_t total) {
  const double now = timer_.seconds();
  if (quiet_ || total == 0) return;
  if (json_) {
    if (now - last_seconds_ < kJsonInterval && done < total) return;
    last_seconds_ = now;
    const std::string line =
        fmt::format("{{\"what\": \"{}\", \"done\": {}, \"total\": {}}}\n", what_, done, total);
    if (std::fputs(line.c_str(), stderr) < 0) _exit(1);  // nothing shows it any more
    return;
  }
  // The first plain line waits a whole interval: short writes stay silent.
  if (!terminal_ && last_seconds_ < 0) last_seconds_ = 0;
  if (now - last_seconds_ < (terminal_ ? kTerminalInterval : kPlainInterval)) return;
  last_seconds_ = now;
  const double rate = static_cast<double>(done) / std::max(now, 1e-3);
  const double eta = rate > 0 ? static_cast<double>(total - done) / rate : 0;
  const std::string text =
      fmt::format("{} {} of {}, {}/s, {} left", what_, amount(done), amount(total),
                  amount(static_cast<uint64_t>(rate)), eta_text(eta));
  if (terminal_) {
    const double share = static_cast<double>(done) / static_cast<double>(total);
    const std::string short_text =
        fmt::format("{} {:.0f} %, {} left", what_, 100 * share, eta_text(eta));
    fmt::print(stderr, "\r{}\033[K",
               terminal_line(text, short_text, share, terminal_columns(STDERR_FILENO) - 1));
    std::fflush(stderr);
    drawn_ = true;
  } else {
    fmt::print(stderr, "{}\n", text);
  }
}

void Progress::finish() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
  drawn_ = false;
}

}  // namespace ktx::tools
