#include "tools/ktx-run/key_reader.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "lib/text/utf8.h"
#include "tools/ktx-run/interrupt.h"

namespace ktx::tools {
namespace {

// The rest of an escape sequence or of a character comes at once, or over a slow line soon.
constexpr int kRestMs = 100;
// A paste whose end does not come was cut off: keys would go into it for ever.
constexpr int kPasteRestMs = 5000;
constexpr size_t kMostSequenceBytes = 32;
constexpr std::string_view kPasteBegin = "\x1b[200~";
constexpr std::string_view kPasteEnd = "\x1b[201~";

enum class Wait { Ready, Nothing, Interrupted, Failed };

// SIGINT is let in only while this waits: one that comes between a look at its flag and the
// wait would not be noticed before the next key.
Wait wait_for_input(int fd, int timeout_ms, bool hears_interrupts) {
  sigset_t interrupt, before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  pthread_sigmask(SIG_BLOCK, &interrupt, &before);
  const timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
  struct pollfd wait = {fd, POLLIN, 0};
  Wait found = Wait::Interrupted;
  if (!hears_interrupts || !interrupted()) {
    const int ready = ::ppoll(&wait, 1, timeout_ms < 0 ? nullptr : &timeout, &before);
    const bool signal_came = ready < 0 && errno == EINTR;
    found = ready > 0                           ? Wait::Ready
            : ready == 0                        ? Wait::Nothing
            : !signal_came                      ? Wait::Failed
            : hears_interrupts && interrupted() ? Wait::Interrupted
                                                : Wait::Nothing;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return found;
}

}  // namespace

KeyReader::Got KeyReader::fill(int timeout_ms, Interrupts interrupts) {
  const Wait waited = wait_for_input(fd_, timeout_ms, interrupts == Interrupts::Heard);
  if (waited == Wait::Interrupted) return Got::Interrupted;
  if (waited == Wait::Failed) return Got::End;
  if (waited == Wait::Nothing) return Got::Nothing;
  char bytes[1 << 16];
  const ssize_t count = ::read(fd_, bytes, sizeof bytes);
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return Got::Nothing;
  if (count <= 0) return Got::End;
  buffer_.erase(0, begin_);
  begin_ = 0;
  buffer_.append(bytes, static_cast<size_t>(count));
  return Got::Bytes;
}

bool KeyReader::more() const {
  if (begin_ < buffer_.size()) return true;
  struct pollfd wait = {fd_, POLLIN, 0};
  return ::poll(&wait, 1, 0) > 0 && (wait.revents & POLLIN);
}

Key KeyReader::take(Key::Kind kind, size_t bytes) {
  Key key{kind, buffer_.substr(begin_, bytes)};
  begin_ += bytes;
  return key;
}

Key KeyReader::next() {
  while (begin_ == buffer_.size()) {
    const Got got = fill(-1, Interrupts::Heard);
    if (got == Got::Interrupted) return {Key::Interrupted, {}};
    if (got == Got::End) return {Key::End, {}};
  }
  const auto first = static_cast<unsigned char>(buffer_[begin_]);
  if (first == 0x1B) return escape();
  if (first < 0x20 || first == 0x7F) return take(Key::Control, 1);
  return character();
}

Key KeyReader::line() {
  size_t searched = 0;
  while (true) {
    const size_t end = buffer_.find('\n', begin_ + searched);
    if (end != std::string::npos) {
      Key key = take(Key::Text, end - begin_);
      ++begin_;
      return key;
    }
    searched = buffer_.size() - begin_;
    const Got got = fill(-1, Interrupts::Heard);
    if (got == Got::Interrupted) return {Key::Interrupted, {}};
    if (got == Got::End) return take(searched > 0 ? Key::Text : Key::End, searched);
  }
}

// ESC [ parameters final, ESC O letter, or ESC and one more (Alt with a key).
Key KeyReader::escape() {
  const auto have = [&](size_t bytes) {
    while (buffer_.size() - begin_ < bytes) {
      if (fill(kRestMs) != Got::Bytes) return false;
    }
    return true;
  };
  if (!have(2)) return take(Key::Control, 1);
  if (buffer_[begin_ + 1] == 'O') return take(Key::Control, have(3) ? 3 : 2);
  if (buffer_[begin_ + 1] != '[') {
    // Before another sequence, or a character of several bytes, only the escape is taken.
    const auto second = static_cast<unsigned char>(buffer_[begin_ + 1]);
    return take(Key::Control, second < 0x80 && second != 0x1B ? 2 : 1);
  }
  size_t length = 2;
  while (length < kMostSequenceBytes && have(length + 1)) {
    const auto byte = static_cast<unsigned char>(buffer_[begin_ + length]);
    if (byte < 0x20 || byte > 0x7E) return take(Key::Control, length);
    ++length;
    const bool linux_function_key = byte == '[' && length == 3;
    if (byte >= 0x40 && !linux_function_key) break;
  }
  if (std::string_view(buffer_).substr(begin_, length) == kPasteBegin) {
    begin_ += length;
    return paste();
  }
  return take(Key::Control, length);
}

Key KeyReader::paste() {
  size_t searched = 0;
  bool too_long = false;
  while (true) {
    const size_t end = buffer_.find(kPasteEnd, begin_ + searched);
    if (end != std::string::npos) {
      Key key = take(too_long ? Key::TooLong : Key::Paste, end - begin_);
      begin_ += kPasteEnd.size();
      return key;
    }
    const size_t here = buffer_.size() - begin_;
    searched = here - std::min(here, kPasteEnd.size() - 1);
    if (here > kMostPasteBytes) {
      too_long = true;
      begin_ += searched;
      searched = 0;
    }
    if (fill(kPasteRestMs) != Got::Bytes) return take(Key::Paste, buffer_.size() - begin_);
  }
}

// All characters that are here, up to the next control character.
Key KeyReader::character() {
  size_t length = 0;
  while (begin_ + length < buffer_.size()) {
    const std::string_view rest = std::string_view(buffer_).substr(begin_ + length);
    const auto first = static_cast<unsigned char>(rest.front());
    if (first < 0x20 || first == 0x7F) break;
    const text::Utf8Char character = text::decode_utf8(rest);
    if (character.cut_off && length > 0) break;
    if (character.cut_off && fill(kRestMs) == Got::Bytes) continue;
    length += character.length;
  }
  return take(Key::Text, length);
}

}  // namespace ktx::tools
