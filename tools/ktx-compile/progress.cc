#include "tools/ktx-compile/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "lib/support/strings.h"

namespace ktx::tools {
namespace {

constexpr double kTerminalInterval = 0.1;  // seconds between redraws
constexpr double kPlainInterval = 10;      // seconds between lines
constexpr int kBarWidth = 30;

std::string eta_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  return whole < 60 ? fmt::format("{} s", whole)
                    : fmt::format("{}:{:02} min", whole / 60, whole % 60);
}

}  // namespace

Progress::Progress(std::string what, bool quiet)
    : what_(std::move(what)), quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}

void Progress::update(uint64_t done, uint64_t total) {
  const double now = timer_.seconds();
  if (quiet_ || total == 0) return;
  // The first plain line waits a whole interval: short writes stay silent.
  if (!terminal_ && last_seconds_ < 0) last_seconds_ = 0;
  if (now - last_seconds_ < (terminal_ ? kTerminalInterval : kPlainInterval)) return;
  last_seconds_ = now;
  const double rate = static_cast<double>(done) / std::max(now, 1e-3);
  const double eta = rate > 0 ? static_cast<double>(total - done) / rate : 0;
  const std::string text =
      fmt::format("{} {} of {}, {}/s, {} left", what_, human_bytes(done), human_bytes(total),
                  human_bytes(static_cast<uint64_t>(rate)), eta_text(eta));
  if (terminal_) {
    const int filled =
        static_cast<int>(kBarWidth * (static_cast<double>(done) / static_cast<double>(total)));
    fmt::print(stderr, "\r[{}{}] {}\033[K", std::string(filled, '#'),
               std::string(kBarWidth - filled, '.'), text);
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
