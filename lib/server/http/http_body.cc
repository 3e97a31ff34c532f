#include "lib/server/http/http_body.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/server/http/http_gzip.h"

namespace ktx::server {
namespace {

// Lines of a chunked body, and all that is in them besides sizes: what no client sends in
// earnest must not grow without bound.
constexpr size_t kLineBytes = 4096;
constexpr uint64_t kExtraBytes = 16384;
constexpr size_t kSizeDigits = 15;

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_extension_char(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte == '\t' || (byte >= ' ' && byte != 0x7F);
}

std::string too_large() {
  return "the body is larger than this server takes; --max-body changes that";
}

}  // namespace

BodyReader::BodyReader(const HttpHead& head, uint64_t most_bytes) : most_bytes_(most_bytes) {
  if (!head.chunked) {
    left_ = head.length;
    state_ = left_ == 0 ? State::Done : State::Data;
    if (left_ > most_bytes_) fail(413, too_large());
  }
  if (state_ == State::Done) return;
  if (head.coding == "gzip" || head.coding == "x-gzip") {
    gzip_ = std::make_unique<GzipReader>();
  } else if (!head.coding.empty() && head.coding != "identity") {
    fail(415, "'Content-Encoding' other than 'gzip' is not supported");
  }
}
BodyReader::~BodyReader() = default;

void BodyReader::fail(int status, std::string message) {
  if (!fault_) fault_ = HttpFault{status, std::move(message)};
}

size_t BodyReader::take(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size() && state_ != State::Done && !fault_) {
    if (state_ == State::Data || state_ == State::ChunkData) {
      const auto part = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size() - at));
      add(bytes.substr(at, part));
      at += part;
      left_ -= part;
      if (left_ == 0) state_ = state_ == State::Data ? State::Done : State::ChunkEnd;
    } else if (take_line(bytes, at)) {
      end_line();
      line_.clear();
    }
  }
  if (state_ == State::Done && gzip_ != nullptr && !gzip_->done()) {
    fail(400, "the body is no whole gzip, which 'Content-Encoding' says it is");
  }
  return at;
}

void BodyReader::add(std::string_view bytes) {
  if (gzip_ == nullptr) {
    make_room(bytes.size());
    text_.append(bytes);
    return;
  }
  const HttpResult<> taken = gzip_->take(bytes, most_bytes_, text_);
  if (!taken) fail(taken.error().status, taken.error().message);
}

// Twice the memory where it is short, but never more than the body may become. (A string's own
// reserve() takes at least twice what it had.)
void BodyReader::make_room(size_t more) {
  const size_t needed = text_.size() + more;
  if (needed <= text_.capacity()) return;
  const uint64_t most = state_ == State::Data ? text_.size() + left_ : most_bytes_;
  std::string larger;
  larger.reserve(std::max<size_t>(needed, std::min<uint64_t>(most, 2 * text_.capacity())));
  larger += text_;
  text_.swap(larger);
}

bool BodyReader::take_line(std::string_view bytes, size_t& at) {
  while (at < bytes.size()) {
    const char c = bytes[at++];
    const bool after_cr = !line_.empty() && line_.back() == '\r';
    if ((c == '\n') != after_cr) {
      fail(400, "a line of the chunked body does not end in CR LF");
      return false;
    }
    if (c == '\n') {
      line_.pop_back();
      return true;
    }
    line_ += c;
    if (line_.size() > kLineBytes) {
      fail(400, "a line of the chunked body is too long");
      return false;
    }
  }
  return false;
}

void BodyReader::end_line() {
  switch (state_) {
    case State::Size:
      return read_size();
    case State::ChunkEnd:
      if (!line_.empty()) return fail(400, "a chunk of the body is longer than its size says");
      state_ = State::Size;
      return;
    default:  // Trailer
      if (line_.empty()) {
        state_ = State::Done;
      } else if (!is_field_line(line_)) {
        fail(400, "a line behind the chunked body is no 'name: value'");
      } else if ((extra_bytes_ += line_.size()) > kExtraBytes) {
        fail(431, "the fields behind the chunked body are too large");
      }
  }
}

// "1A" or "1A;name=value"; the size decides what comes next.
void BodyReader::read_size() {
  size_t digits = 0;
  uint64_t size = 0;
  while (digits < line_.size() && digits <= kSizeDigits && hex_value(line_[digits]) >= 0) {
    size = size * 16 + static_cast<uint64_t>(hex_value(line_[digits]));
    ++digits;
  }
  const std::string_view rest = std::string_view(line_).substr(digits);
  const bool extension = !rest.empty() && rest.front() == ';';
  const bool right = digits > 0 && digits <= kSizeDigits && (rest.empty() || extension) &&
                     std::all_of(rest.begin(), rest.end(), is_extension_char);
  if (!right) return fail(400, "a chunk of the body has no valid size");
  if ((extra_bytes_ += rest.size()) > kExtraBytes) {
    return fail(400, "the chunks of the body have too many extensions");
  }
  if (size > most_bytes_ || text_.size() + size > most_bytes_) return fail(413, too_large());
  left_ = size;
  state_ = size == 0 ? State::Trailer : State::ChunkData;
}

}  // namespace ktx::server
