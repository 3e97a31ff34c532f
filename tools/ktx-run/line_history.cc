#include "tools/ktx-run/line_history.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "lib/support/mapped_file.h"

namespace ktx::tools {
namespace {

constexpr std::string_view kHeader = "_HiStOrY_V2_";
constexpr size_t kMostFileBytes = 64 << 20;

void write_all(int fd, const std::string& text) {
  (void)!::write(fd, text.data(), text.size());
  ::close(fd);
}

// Not a pipe or a device (a link to /dev/null is how people keep no history). The file is
// for its owner alone.
int open_history(const std::string& file, int flags) {
  const int fd = ::open(file.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0600);
  struct stat info = {};
  if (fd >= 0 && (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))) {
    ::close(fd);
    return -1;
  }
  if (fd >= 0) (void)fchmod(fd, 0600);
  return fd;
}

}  // namespace

std::string encode_history_line(std::string_view line) {
  std::string out;
  for (const char c : line) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= ' ' || byte == '\\' || byte == 0x7F)
      out += fmt::format("\\{:03o}", byte);
    else
      out += c;
  }
  return out;
}

std::string decode_history_line(std::string_view line) {
  std::string out;
  const auto octal = [&](size_t i) { return i < line.size() && line[i] >= '0' && line[i] <= '7'; };
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\' || i + 1 == line.size()) {
      out += line[i];
    } else if (octal(i + 1) && octal(i + 2) && octal(i + 3)) {
      out +=
          static_cast<char>((line[i + 1] - '0') * 64 + (line[i + 2] - '0') * 8 + line[i + 3] - '0');
      i += 3;
    } else {
      out += line[++i];
    }
  }
  return out;
}

LineHistory::LineHistory(std::string file) : file_(std::move(file)) {
  if (file_.empty()) return;
  const Result<std::string> text = read_text_file(file_, kMostFileBytes);
  if (!text) return;
  size_t count = 0;
  for (size_t begin = 0; begin < text->size(); ++count) {
    const size_t end = std::min(text->find('\n', begin), text->size());
    const std::string_view line = std::string_view(*text).substr(begin, end - begin);
    if (!line.empty() && line != kHeader) lines_.push_back(decode_history_line(line));
    begin = end + 1;
  }
  // The last one of equal lines stays.
  const std::vector<std::string> newest_first(lines_.rbegin(), lines_.rend());
  lines_.clear();
  for (const std::string& line : newest_first) {
    if (lines_.size() == kMostLines) break;
    if (std::find(lines_.begin(), lines_.end(), line) == lines_.end()) {
      lines_.push_back(line);
    }
  }
  std::reverse(lines_.begin(), lines_.end());
  if (count > 2 * kMostLines) shorten_file();
}

void LineHistory::note(const std::string& line) {
  lines_.erase(std::remove(lines_.begin(), lines_.end(), line), lines_.end());
  if (lines_.size() == kMostLines) lines_.erase(lines_.begin());
  lines_.push_back(line);
}

void LineHistory::add(const std::string& line) {
  if (line.empty()) return;
  const bool again = !lines_.empty() && lines_.back() == line;
  note(line);
  if (!again && !file_.empty() && line.size() <= kMostLineBytes) append(line);
}

void LineHistory::append(const std::string& line) const {
  const int fd = open_history(file_, O_WRONLY | O_APPEND | O_CREAT);
  if (fd < 0) return;
  struct stat info = {};
  const bool is_new = fstat(fd, &info) == 0 && info.st_size == 0;
  write_all(fd, (is_new ? std::string(kHeader) + "\n" : "") + encode_history_line(line) + "\n");
}

void LineHistory::shorten_file() const {
  const int fd = open_history(file_, O_WRONLY | O_TRUNC);
  if (fd < 0) return;
  std::string all = std::string(kHeader) + "\n";
  for (const std::string& line : lines_) {
    if (line.size() <= kMostLineBytes) all += encode_history_line(line) + "\n";
  }
  write_all(fd, all);
}

}  // namespace ktx::tools
